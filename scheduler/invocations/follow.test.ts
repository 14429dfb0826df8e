import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { FollowCursor, type LogRead } from './follow.ts';
import type { InvocationEvent, Position } from './types.ts';

const EPOCH = 1000;
const positionAt = (seq: number): Position => ({ epoch: null, seq });

/** A log of `length` events, the last one terminal. */
function log(length: number): InvocationEvent[] {
  return Array.from({ length }, (_, i) => ({
    seq: i + 1,
    epoch: EPOCH,
    event: i + 1 === length ? 'result' : 'message',
    data: `${i + 1}`,
  }));
}

// `write`: the log gets an event, whose live message is then under way. `deliver`: two live messages arrive. `drain`: the reader takes live events.
// `ask` begins a read of the log, and `answer` ends it. `interrupt`: the live messages under way are lost.
test('any mix of writes, reads, live messages and interruptions yields each event once, in order', () => {
  const action = fc.oneof(
    { weight: 4, arbitrary: fc.constant('write' as const) },
    { weight: 3, arbitrary: fc.constant('deliver' as const) },
    { weight: 2, arbitrary: fc.constant('drain' as const) },
    { weight: 2, arbitrary: fc.constant('ask' as const) },
    { weight: 2, arbitrary: fc.constant('answer' as const) },
    { weight: 1, arbitrary: fc.constant('interrupt' as const) },
  );
  fc.assert(
    fc.property(
      fc.array(action, { maxLength: 120, size: 'max' }),
      fc.integer({ min: 1, max: 25 }),
      fc.nat(25),
      fc.integer({ min: 1, max: 5 }),
      fc.integer({ min: 1, max: 6 }),
      (actions, length, start, readCount, maxWaiting) => {
        const logEvents = log(length);
        const afterSeq = start % length;
        const cursor = new FollowCursor(positionAt(afterSeq), { maxWaiting });
        const seen: number[] = [];
        const take = (events: Iterable<InvocationEvent>) => {
          for (const event of events) seen.push(event.seq);
        };
        let written = 0;
        let undelivered: InvocationEvent[] = [];
        let reading: { token: number; events: InvocationEvent[]; complete: boolean } | null = null;
        const write = () => {
          const event = logEvents[written];
          if (event === undefined) return;
          written += 1;
          undelivered.push(event);
        };
        const ask = () => {
          if (reading !== null || !cursor.isBehind) return;
          const rest = logEvents.slice(0, written).filter(({ seq }) => seq > cursor.lastSeq);
          reading = { token: cursor.beginRead(), events: rest.slice(0, readCount), complete: rest.length < readCount };
        };
        const answer = () => {
          if (reading === null) return;
          take(cursor.replay(reading.token, reading));
          reading = null;
        };
        for (const step of actions) {
          if (step === 'write') write();
          else if (step === 'deliver') cursor.addLive(undelivered.splice(0, 2));
          else if (step === 'drain') take(cursor.drain());
          else if (step === 'ask') ask();
          else if (step === 'answer') answer();
          else {
            undelivered = [];
            cursor.interrupted();
          }
        }
        // From any state that the steps leave, the cursor must reach the end.
        while (written < length) write();
        for (let i = 0; i < 3 * length + 10 && !cursor.isDone; i += 1) {
          cursor.addLive(undelivered.splice(0, 2));
          take(cursor.drain());
          ask();
          answer();
        }
        assert.ok(cursor.isDone);
        assert.deepEqual(
          seen,
          logEvents.slice(afterSeq).map(({ seq }) => seq),
        );
      },
    ),
    { seed: 20261101, numRuns: 500 },
  );
});

// Other actions than above: `show` lets the runtime show an event, and `write` logs all events shown so far. After `interrupt` and `cut`, the live
// events under way are lost and the runtime attaches anew; only `interrupt` tells the cursor.
test('each event arrives once, in order, although live events precede the log, get lost, are repeated or have gaps', () => {
  const action = fc.oneof(
    { weight: 4, arbitrary: fc.constant('show' as const) },
    { weight: 2, arbitrary: fc.constant('write' as const) },
    { weight: 3, arbitrary: fc.constant('deliver' as const) },
    { weight: 2, arbitrary: fc.constant('drain' as const) },
    { weight: 2, arbitrary: fc.constant('ask' as const) },
    { weight: 2, arbitrary: fc.constant('answer' as const) },
    { weight: 1, arbitrary: fc.constantFrom('interrupt' as const, 'cut' as const) },
  );
  fc.assert(
    fc.property(
      fc.array(action, { maxLength: 150, size: 'max' }),
      fc.integer({ min: 1, max: 25 }),
      fc.nat(25),
      fc.integer({ min: 1, max: 5 }),
      fc.integer({ min: 1, max: 6 }),
      (actions, length, jump, readCount, maxWaiting) => {
        // After the event at index `jump`, the numbers skip seven, as when the platform continues the log of a lost attempt.
        const logEvents = log(length).map((event, i) => ({ ...event, seq: event.seq + (i > jump ? 7 : 0) }));
        // The platform writes the first event after the jump and the terminal event; the runtime shows the others.
        const isFromPlatform = (i: number) => i === length - 1 || i === jump + 1;
        const cursor = new FollowCursor(positionAt(0), { maxWaiting });
        const seen: number[] = [];
        const take = (events: Iterable<InvocationEvent>) => {
          for (const event of events) seen.push(event.seq);
        };
        let [shown, written] = [0, 0];
        let undelivered: (() => void)[] = [];
        const deliver = (event: InvocationEvent) => undelivered.push(() => cursor.addLive([event]));
        let reading: { token: number; events: InvocationEvent[]; complete: boolean } | null = null;
        const write = () => {
          written = shown;
        };
        const show = () => {
          const event = logEvents[shown];
          if (event === undefined) return;
          // The platform logs its event after all events shown so far, and before any follower gets it.
          if (isFromPlatform(shown)) write();
          shown += 1;
          if (isFromPlatform(shown - 1)) write();
          deliver(event);
        };
        // The runtime tells the follower the last number of the log, and shows the later events again.
        const attach = () => {
          const logged = logEvents[written - 1]?.seq ?? 0;
          undelivered.push(() => cursor.noteKnown(logged));
          for (const event of logEvents.slice(written, shown)) deliver(event);
        };
        const ask = () => {
          if (reading !== null || !cursor.isBehind) return;
          const rest = logEvents.slice(0, written).filter(({ seq }) => seq > cursor.lastSeq);
          reading = { token: cursor.beginRead(), events: rest.slice(0, readCount), complete: rest.length < readCount };
        };
        const answer = () => {
          if (reading === null) return;
          take(cursor.replay(reading.token, reading));
          reading = null;
        };
        for (const step of actions) {
          if (step === 'show') show();
          else if (step === 'write') write();
          else if (step === 'deliver') for (const tell of undelivered.splice(0, 2)) tell();
          else if (step === 'drain') take(cursor.drain());
          else if (step === 'ask') ask();
          else if (step === 'answer') answer();
          else {
            undelivered = [];
            if (step === 'interrupt') cursor.interrupted();
            attach();
          }
        }
        // From any state that the steps leave, the cursor must reach the end.
        while (shown < length) show();
        for (let i = 0; i < 4 * length + 20 && !cursor.isDone; i += 1) {
          for (const tell of undelivered.splice(0, 2)) tell();
          take(cursor.drain());
          ask();
          answer();
        }
        assert.ok(cursor.isDone);
        assert.deepEqual(
          seen,
          logEvents.map(({ seq }) => seq),
        );
      },
    ),
    { seed: 20261121, numRuns: 2000 },
  );
});

/** The store's answer to a reader at `position`. Scans the whole log for the last event of the reader's epoch or an earlier one. */
function readOf(logged: readonly InvocationEvent[], epoch: number, position: Position, readCount: number): LogRead {
  const untilEpoch = logged.filter((event) => position.epoch === null || event.epoch <= position.epoch);
  const last = untilEpoch.at(-1)?.seq ?? 0;
  const isReused = position.epoch !== null && epoch > position.epoch && position.seq > last;
  const lost = isReused ? { after: last, epoch } : undefined;
  const rest = logged.filter(({ seq }) => seq > (lost?.after ?? position.seq));
  return { events: rest.slice(0, readCount), complete: rest.length < readCount, lost };
}

test('after the log loses events and reuses their numbers, a gap tells each reader which events are void', () => {
  const action = fc.oneof(
    { weight: 6, arbitrary: fc.constant('show' as const) },
    { weight: 3, arbitrary: fc.constant('write' as const) },
    { weight: 4, arbitrary: fc.constant('deliver' as const) },
    { weight: 3, arbitrary: fc.constant('drain' as const) },
    { weight: 2, arbitrary: fc.constant('ask' as const) },
    { weight: 2, arbitrary: fc.constant('answer' as const) },
    { weight: 1, arbitrary: fc.constantFrom('interrupt' as const, 'lose' as const, 'lose and interrupt' as const) },
  );
  let gapCount = 0;
  fc.assert(
    fc.property(
      fc.array(action, { minLength: 40, maxLength: 200, size: 'max' }),
      fc.array(fc.nat(8), { minLength: 1, maxLength: 10 }),
      fc.integer({ min: 1, max: 5 }),
      fc.integer({ min: 1, max: 6 }),
      (actions, keptCounts, readCount, maxWaiting) => {
        const cursor = new FollowCursor(positionAt(0), { maxWaiting });
        /** Events that are valid for the reader: a gap revokes the events after its number. */
        let valid: InvocationEvent[] = [];
        let [shown, written, epoch, losses]: [InvocationEvent[], number, number, number] = [[], 0, EPOCH, 0];
        let undelivered: (() => void)[] = [];
        let reading: { token: number; read: LogRead } | null = null;
        const take = (events: readonly InvocationEvent[]) => {
          for (const event of events) {
            if (event.event !== 'gap') valid.push(event);
            else {
              valid = valid.filter(({ seq }) => seq <= JSON.parse(event.data).after);
              gapCount += 1;
            }
          }
        };
        const show = (event: InvocationEvent['event'] = 'message') => {
          const next = { seq: shown.length + 1, epoch, event, data: `${epoch}:${shown.length + 1}` };
          shown.push(next);
          undelivered.push(() => cursor.addLive([next]));
        };
        const attach = () => {
          const events = shown.slice(written);
          const logged = written;
          undelivered.push(() => {
            cursor.noteKnown(logged);
            cursor.addLive(events);
          });
        };
        // The log keeps only its first events. The next attempt reuses the numbers of the others in a later epoch.
        const lose = () => {
          written = Math.min(written, (keptCounts[losses % keptCounts.length] ?? 0) + 1);
          losses += 1;
          shown = shown.slice(0, written);
          epoch += 1;
        };
        const interrupt = () => {
          undelivered = [];
          cursor.interrupted();
        };
        const ask = () => {
          if (reading !== null || !cursor.isBehind) return;
          const read = readOf(shown.slice(0, written), epoch, cursor.position, readCount);
          reading = { token: cursor.beginRead(), read };
        };
        const answer = () => {
          if (reading !== null) take(cursor.replay(reading.token, reading.read));
          reading = null;
        };
        for (const step of actions) {
          if (step === 'show') show();
          else if (step === 'write') written = shown.length;
          else if (step === 'deliver') for (const tell of undelivered.splice(0, 2)) tell();
          else if (step === 'drain') take(cursor.drain());
          else if (step === 'ask') ask();
          else if (step === 'answer') answer();
          else {
            if (step.startsWith('lose')) lose();
            if (step.endsWith('interrupt')) interrupt();
            attach();
          }
        }
        show('result');
        written = shown.length;
        for (let i = 0; i < 6 * (shown.length + 200) && !cursor.isDone; i += 1) {
          for (const tell of undelivered.splice(0, 2)) tell();
          take(cursor.drain());
          // The timer of an idle follower does the same.
          if (undelivered.length === 0 && !cursor.hasWaiting && !cursor.isBehind) cursor.interrupted();
          ask();
          answer();
        }
        assert.ok(cursor.isDone);
        assert.deepEqual(valid, shown);
      },
    ),
    { seed: 20261122, numRuns: 2000 },
  );
  assert.ok(gapCount > 500, `the readers got ${gapCount} gaps`);
});

test('the cursor falls behind once it has drained its events and knows of a later stored one', () => {
  const cursor = new FollowCursor(positionAt(0));
  assert.deepEqual([...cursor.replay(cursor.beginRead(), { events: [], complete: true })], []);
  cursor.addLive([{ seq: 1, epoch: EPOCH, event: 'message', data: '' }]);
  cursor.noteKnown(2);
  assert.equal([...cursor.drain()].length, 1);
  assert.ok(cursor.isBehind);
});

test('a terminal event whose number was already handed out makes the cursor read the log, and gets the next number', () => {
  const cursor = new FollowCursor(positionAt(0));
  const events: InvocationEvent[] = [];
  events.push(...cursor.replay(cursor.beginRead(), { events: log(5).slice(0, 4), complete: true }));
  assert.equal(cursor.isBehind, false);
  const terminal = { seq: 3, epoch: EPOCH, event: 'error', data: '{}' } as const;
  cursor.addLive([terminal]);
  events.push(...cursor.drain());
  assert.ok(cursor.isBehind, 'the cursor must read the log');
  events.push(...cursor.ended(terminal));
  assert.ok(cursor.isDone);
  assert.deepEqual(
    events.map(({ seq }) => seq),
    [1, 2, 3, 4, 5],
  );
  assert.deepEqual(
    [...new FollowCursor(positionAt(3)).ended(terminal)],
    [],
    'the reader may have seen the terminal event',
  );
  assert.deepEqual([...new FollowCursor(positionAt(4)).ended(terminal)], [{ ...terminal, seq: 5 }]);
  assert.deepEqual(
    [...new FollowCursor(positionAt(5)).ended(terminal)],
    [{ ...terminal, seq: 6 }],
    'a second terminal event is better than none',
  );
});
