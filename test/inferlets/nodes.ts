/** Runs a workflow or a program, or only records spans. For the end-to-end test of the waterfall, which shows nodes and spans. */
import { defineInferlet, recordSpan, send, sleep } from '@pie/inferlet';
import { program, workflow } from '@pie/inferlet/workflow';

interface Input {
  /** `fail` and `wait` run the workflow with a tool that throws or sleeps. `spans` only records spans. */
  readonly what: 'workflow' | 'fail' | 'wait' | 'program' | 'spans';
}

/** A node name with markup. Builders of workflows take any name. */
const MARKED = '<b>"tool"&';

const app = workflow('story', (g, { what }: Input) => {
  const told = g.generate('Once upon a time', { maxTokens: 4 });
  const tool = g.call(MARKED, { told }, 'text', async ({ told: text }) => {
    if (what === 'fail') throw new Error('on purpose');
    if (what === 'wait') {
      await send('waits');
      await sleep(60_000);
    }
    return text;
  });
  const round = g.call('zero', {}, 'number', () => 0);
  const ended = g.loop({ round }, 2, (inner, state) => {
    const next = inner.call('next', state, 'number', (values) => values.round + 1);
    return { round: next, done: inner.call('done', { next }, 'flag', () => false) };
  });
  return { tool, round: ended.round };
});

/** A program that reads the value of a node. Such a program is interpreted. */
const read = program<Input>('read', async (session) => {
  const state = session.state().add`Once upon`;
  const seen = session.call('seen', [], 'text', () => 'a time');
  state.add`${await session.read(seen)}`;
  return { seen };
});

export const run = defineInferlet(async (input: Input) => {
  if (input.what === 'program') return read.run(input);
  if (input.what !== 'spans') return app.run(input);
  const began = Date.now();
  for (const time of [Number.NaN, -1, Number.POSITIVE_INFINITY, 1.5, began])
    recordSpan(`at ${time}`, { began: time, ended: time });
  for (let i = 0; i < 100; i++) recordSpan(`${MARKED}${i}`, { began, kind: 'own', failed: i === 0 });
  recordSpan('n'.repeat(200), { began, failed: true });
  return null;
});
