import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { callFunction, failingFunction } from '#test/harness/functions.ts';
import { deployGranting } from '#test/harness/tool-server.ts';
import { samePasses } from '../rag-shared/testing/documents.ts';
import { SearchEngine } from './testing/search-engine.ts';

const question = 'Who baked a cake with apples?';

describe('search-generation', () => {
  it('answers the same with all passes and with none, from what each query finds', async () => {
    await using engine = await SearchEngine.start();
    await deployGranting('search-generation', engine.host);
    const input = { question, engine: engine.url, search: 'always', queries: 3 };
    const { answer, searched, queries } = await samePasses('search-generation', input);
    assert.equal(typeof answer, 'string');
    assert.equal(searched, true);
    assert.equal(queries.length, 3);
    assert.deepEqual(engine.queries.slice(0, 3).toSorted(), queries.toSorted());
    // `samePasses` runs the function twice, with three queries each time.
    assert.equal(engine.queries.length, 2 * 3);
  });

  it('sends no query that the model has not written', async () => {
    await using engine = await SearchEngine.start();
    await deployGranting('search-generation', engine.host);
    const { output } = await callFunction('search-generation', {
      question,
      engine: engine.url,
      search: 'always',
      queries: 8,
    });
    const written = output.queries.filter((query: string) => query !== '');
    assert.ok(written.length > 0 && written.length < 8, `${written.length} queries`);
    assert.deepEqual(engine.queries.toSorted(), written.toSorted());
  });

  it('searches only if the proxy model judges its draft insufficient', async () => {
    await using engine = await SearchEngine.start();
    await deployGranting('search-generation', engine.host);
    const { answer, draft, searched } = await samePasses('search-generation', { question, engine: engine.url });
    assert.equal(engine.queries.length > 0, searched);
    if (!searched) assert.equal(answer, draft);
  });

  it('repeats a failed search once, and reports a second failure', async () => {
    await using engine = await SearchEngine.start({ failures: 1 });
    await deployGranting('search-generation', engine.host);
    const input = { question, engine: engine.url, search: 'always', queries: 1 };
    assert.equal((await callFunction('search-generation', input)).output.searched, true);
    assert.equal(engine.queries.length, 2);

    await using broken = await SearchEngine.start({ failures: 9 });
    await deployGranting('search-generation', broken.host);
    const { message } = await failingFunction('search-generation', { ...input, engine: broken.url });
    assert.match(message, /^unavailable: The search engine answered 503/);
  });
});
