/** Something worth hearing for the playground, plain enough for a voice with a small alphabet. */
export const SAMPLES = [
  {
    name: 'Greeting',
    text: 'Good morning. I can hear you well. What would you like to talk about today?',
  },
  {
    name: 'Answer',
    text:
      'Your train leaves at ten past nine from platform four. It is about six minutes late, so there is time for a coffee. ' +
      'Shall I send the ticket to your phone, or would you rather have it on paper?',
  },
  {
    name: 'Story',
    text:
      'The keeper of the light had one rule, and it was a simple one. When the fog came in, you talked. ' +
      'You told the sea about your day, about the bread and the broken gate and the letter from your sister. ' +
      'The boats could not see the lamp on such nights, but they could hear a voice, and a voice was enough.',
  },
  {
    name: 'Numbers',
    text: 'The meeting moved to 14:30 on 3 May 2027. It costs $49.99, about 15% less than last year, and takes 2.5 hours.',
  },
];
