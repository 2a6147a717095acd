import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Chat } from '../chat.js';

const spoken = (messages) => messages.slice(1).map(({ role, content }) => [role, content]);

test('of an answer that was interrupted the model is sent what was heard, exactly', async () => {
  const chat = new Chat();
  const first = chat.ask('Tell me a story.');
  assert.deepEqual(spoken(await chat.messages(first)), [['user', 'Tell me a story.']]);
  first.settle('Once upon a time,  there ');
  const second = chat.ask('Another one!');
  const messages = await chat.messages(second);
  assert.equal(messages[0].role, 'system');
  assert.deepEqual(spoken(messages), [['user', 'Tell me a story.'], ['assistant', 'Once upon a time,  there '], ['user', 'Another one!']]);
});

test('a question waits until it is known what was heard of the answer before', async () => {
  const chat = new Chat();
  const first = chat.ask('One');
  let known = false;
  const messages = chat.messages(chat.ask('Two')).then((found) => (known = true, found));
  await new Promise(setImmediate);
  assert.equal(known, false);
  first.settle('Fine');
  first.settle('never heard');
  assert.deepEqual(spoken(await messages), [['user', 'One'], ['assistant', 'Fine'], ['user', 'Two']]);
});

test('an answer of which nothing was heard is none, and users and assistants alternate', async () => {
  const chat = new Chat();
  chat.ask('One').settle('');
  chat.ask('Two').settle(' ');
  const third = chat.ask('Three');
  assert.deepEqual(spoken(await chat.messages(third)), [['user', 'One\nTwo\nThree']]);
});

test('a turn that is taken back, and a conversation that is over, are not sent', async () => {
  const chat = new Chat();
  chat.takeBack(chat.ask('lost'));
  assert.deepEqual(spoken(await chat.messages(chat.ask('One'))), [['user', 'One']]);
  chat.clear();
  assert.deepEqual(spoken(await chat.messages(chat.ask('Two'))), [['user', 'Two']]);
});
