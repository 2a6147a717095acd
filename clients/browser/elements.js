/** Elements made in scripts. */

const ICONS = {
  play: 'M8 5v14l11-7z',
  pause: 'M7 5h4v14H7zm6 0h4v14h-4z',
  stop: 'M7 7h10v10H7z',
  edit: 'M6 10a2 2 0 1 0 0 4 2 2 0 0 0 0-4zm6 0a2 2 0 1 0 0 4 2 2 0 0 0 0-4zm6 0a2 2 0 1 0 0 4 2 2 0 0 0 0-4z',
};

/** @param {string} name @param {object} properties @param {...(Node | string)} children @returns {HTMLElement} */
export function make(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

/**
 * A button with an icon or a text.
 * @param {{icon?: keyof typeof ICONS, text?: string, label: string, className?: string}} shown `label` for screen readers
 * @param {(event: MouseEvent) => void} onClick
 */
export function button({ icon, text = '', label, className = '' }, onClick) {
  const element = make('button', { type: 'button', className, textContent: text });
  if (icon) {
    const [svg, path] = ['svg', 'path'].map((name) => document.createElementNS('http://www.w3.org/2000/svg', name));
    svg.setAttribute('viewBox', '0 0 24 24');
    svg.setAttribute('aria-hidden', 'true');
    svg.append(path);
    element.append(svg);
    setIcon(element, icon);
  }
  element.setAttribute('aria-label', label);
  element.addEventListener('click', onClick);
  return element;
}

/** @param {HTMLElement} element with an icon @param {keyof typeof ICONS} icon */
export function setIcon(element, icon) {
  element.querySelector('path').setAttribute('d', ICONS[icon]);
}

/** Set the text of an element that is set in each frame: the same text again would cost a layout. @param {Element} element @param {string} text */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
