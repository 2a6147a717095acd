/** History of a conversation: of each answer the model is sent the text that was heard. */

const SYSTEM = `Your answers are read aloud while you write them. Write short, plain sentences without lists, markup and emoji. \
An answer of yours that ends in mid-sentence was interrupted there: the user heard nothing after it.`;

/** @typedef {{question: string, heard: Promise<string>, settle: (heard: string) => void}} ChatTurn */

export class Chat {
  /** @type {ChatTurn[]} */
  #turns = [];

  /** @param {string} question @returns {ChatTurn} whose `settle` is called with the heard text once it is known */
  ask(question) {
    const turn = { question };
    turn.heard = new Promise((resolve) => (turn.settle = resolve));
    this.#turns.push(turn);
    return turn;
  }

  /** Return how many turns are before this one. @param {ChatTurn} turn */
  numberOf(turn) {
    return this.#turns.indexOf(turn);
  }

  /** Forget a turn that had no answer. @param {ChatTurn} turn */
  takeBack(turn) {
    this.#turns = this.#turns.filter((other) => other !== turn);
  }

  clear() {
    this.#turns = [];
  }

  /**
   * Return the messages that ask for a turn's answer, once all earlier answers have been heard or interrupted.
   * @param {ChatTurn} turn @returns {Promise<{role: string, content: string}[]>} users and assistants in turn, as some models require
   */
  async messages(turn) {
    const messages = [{ role: 'system', content: SYSTEM }];
    const add = (role, content) => {
      if (messages.at(-1).role === role) messages.at(-1).content += `\n${content}`; // nothing was heard between them
      else messages.push({ role, content });
    };
    for (const { question, heard } of this.#turns.slice(0, this.#turns.indexOf(turn))) {
      add('user', question);
      const answer = await heard;
      if (answer.trim()) add('assistant', answer);
    }
    add('user', turn.question);
    return messages;
  }
}
