import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type GpuHostConnection, SharedPages } from '../protocol/client.ts';
import { must, startTestHost, tagOf, until } from '../testing/host.ts';
import { Attempts } from './attempts.ts';

const ROOT = 'invocation';

/** Opens an inferlet of the invocation's attempt `epoch`, or of a child in that attempt. */
function open(connection: GpuHostConnection, epoch: number, id = ROOT) {
  const sharedPages = new SharedPages(ROOT, 6);
  sharedPages.epoch = epoch;
  const causes: string[] = [];
  const inferlet = connection.openInferlet({
    id,
    epoch: id === ROOT ? epoch : 1,
    arrival: 1,
    maxPages: 8,
    sharedPages,
    functionName: 'f',
    onTerminated: ({ cause }) => causes.push(cause),
  });
  return { inferlet, queue: inferlet.createQueue('tiny'), causes };
}

type Opened = ReturnType<typeof open>;

const allocate = ({ inferlet, queue }: Opened, pages: number) => must(inferlet.allocatePages(queue, pages));
const lock = ({ inferlet, queue }: Opened) => inferlet.openFile(queue, 'notes', true, 'f');

async function save({ inferlet, queue }: Opened, pages: Uint32Array) {
  const rights = 'private' as const;
  return tagOf(
    await inferlet.ask(queue, {
      op: 'file-save',
      name: 'notes',
      pages,
      persistent: false,
      rights,
      functionName: 'f',
    }),
  );
}

test('a newer attempt ends the older one on any connection, and gets its pages and locks', async () => {
  await using host = await startTestHost();
  const [hanging, alive] = [await host.connect(), await host.connect()];
  const maker = open(alive, 0, 'maker');
  assert.equal(await save(maker, allocate(maker, 1)), 'ok');
  await maker.inferlet.close();

  const old = open(hanging, 1);
  const child = open(hanging, 1, 'child');
  const pages = allocate(old, 4);
  must(await lock(old));
  allocate(child, 1);
  must(await child.inferlet.synchronize(child.queue));
  const fresh = open(alive, 2);
  const opened = must(await lock(fresh));
  const freshPages = allocate(fresh, 5);
  must(await fresh.inferlet.synchronize(fresh.queue));
  assert.equal(await save(old, pages), 'terminated');
  assert.equal(tagOf(await child.inferlet.synchronize(child.queue)), 'terminated');
  const cause = 'a newer attempt of its invocation has taken its place';
  assert.deepEqual([old.causes, child.causes, fresh.causes], [[cause], [cause], []]);

  // The last inferlets of the old attempt leave; the new attempt keeps its lock.
  hanging.close();
  // `alive` has two connections: one for the state of the host, and one for the tenant.
  await until(() => host.host.stats().connections === 2);
  const outdatedChild = open(alive, 1, 'other');
  const outdated = open(alive, 1);
  assert.equal(tagOf(await outdated.inferlet.synchronize(outdated.queue)), 'terminated');
  assert.equal(
    tagOf(await outdatedChild.inferlet.synchronize(outdatedChild.queue)),
    'terminated',
    'a child of an old attempt',
  );
  const stranger = alive.openInferlet({ id: 'stranger', epoch: 0, arrival: 2, maxPages: 8 });
  const queue = stranger.createQueue('tiny');
  assert.equal(tagOf(await stranger.openFile(queue, 'notes', true, 'f')), 'unavailable');
  assert.equal(await save(fresh, Uint32Array.of(...opened.pages, freshPages[0] as number)), 'ok');
  await Promise.all([fresh, outdated, outdatedChild].map(({ inferlet }) => inferlet.close()));
  must(await stranger.openFile(queue, 'notes', true, 'f'));
  await stranger.close();
  assert.equal(host.host.stats().models[0]?.pages.owned, 2, 'the two pages of the file');
});

test('a newer attempt supersedes all older ones, and a root without inferlets is forgotten', () => {
  const attempts = new Attempts();
  const ended: string[] = [];
  const inferlet = (name: string) => ({ superseded: () => void ended.push(name) });
  const [a, b, c, d] = [inferlet('a'), inferlet('b'), inferlet('c'), inferlet('d')];
  attempts.enter('r', 1, a);
  attempts.enter('r', 1, b);
  attempts.enter('r', 3, c);
  attempts.enter('r', 2, d);
  attempts.enter('other', 1, a);
  assert.deepEqual(ended, ['a', 'b', 'd']);
  for (const one of [a, b, c, d]) attempts.leave('r', one);
  attempts.leave('other', a);
  assert.equal(attempts.size, 0);
});
