import assert from 'node:assert/strict';
import { test } from 'node:test';
import { call, deploy, modelStats } from '#test/harness/deploy.ts';
import { hold, invoke, type StreamEvent, terminal } from '#test/harness/events.ts';
import { Platform, until } from '#test/harness/platform.ts';

const config = (pages: number, overcommit: number) =>
  `[[model]]\nname = "stories15m"\npages = ${pages}\nprefix_cache = false\n\n[admission]\novercommit = ${overcommit}\n`;

test('pages of a waiting inferlet are swapped out for another one and come back unchanged', async () => {
  await using platform = await Platform.start({ functions: false, config: config(64, 64) });
  await deploy(platform, 'pressure');
  const sleeper = await hold(platform, 'pressure', { pages: 40, tokens: 4, hold: true });
  // The pages count as idle only after the inferlet has waited for a while.
  await until('its pages are idle', async () => (await modelStats(platform)).idlePages >= 40);
  const other = await call(platform, 'pressure', { pages: 40, tokens: 4, prompt: 'The dog' });
  assert.equal(other.change, 0);
  await sleeper.goOn();
  const end = terminal(await sleeper.ended);
  assert.equal(end?.event, 'result', JSON.stringify(end?.data));
  assert.ok(end);
  const { change, tokens } = end.data.output;
  assert.equal(change, 0);
  const stats = await modelStats(platform);
  assert.ok(stats.swapsOut > 0 && stats.swapsIn > 0, `${stats.swapsOut} out, ${stats.swapsIn} in`);
  assert.equal(stats.terminations, 0);
  const alone = await call(platform, 'pressure', { pages: 0, tokens: 4 });
  assert.deepEqual(tokens, alone.tokens);
});

/** Largest change of a log-probability that other sequences in the batch may cause by rounding. */
const ROUNDING = 1e-4;
const INFERLETS = process.env.PIE_TEST_ALL ? 128 : 64;
/** Pages that each inferlet fills. */
const PAGES = 6;
/** Most pages that an inferlet holds: these and the pages of its text. */
const PAGES_OF_INFERLET = PAGES + 3;

for (const overcommit of process.env.PIE_TEST_ALL ? [2, 4, 8] : [8]) {
  test(`of ${INFERLETS} inferlets at ${overcommit}× the memory, each returns a result or is terminated with its cause`, async () => {
    const pages = Math.ceil((INFERLETS * PAGES_OF_INFERLET) / overcommit);
    await using platform = await Platform.start({ functions: false, config: config(pages, overcommit * 2) });
    await deploy(platform, 'pressure');
    const ended: (StreamEvent | undefined)[] = await Promise.all(
      Array.from({ length: INFERLETS }, async (_, i) => {
        const input = { pages: PAGES, tokens: 12, prompt: `Story ${i}` };
        return terminal(await invoke(platform, 'pressure', input));
      }),
    );
    const finished = ended.filter((end) => end?.event === 'result');
    const failures = ended.filter((end) => end?.event === 'error');
    for (const end of failures) assert.equal(end?.data.code, 'terminated', JSON.stringify(end?.data));
    for (const end of finished) assert.ok(end?.data.output.change < ROUNDING, JSON.stringify(end?.data.output));
    assert.equal(finished.length + failures.length, INFERLETS);
    // At least as many inferlets finish as fit at once: the GPU host ends the youngest inferlets first, so the oldest ones survive.
    assert.ok(finished.length >= Math.floor(pages / PAGES_OF_INFERLET), `${finished.length} finished`);
    await until('all pages are free', async () => {
      const { pages, inferlets } = await modelStats(platform);
      return pages.free === pages.total && inferlets === 0;
    });
  });
}
