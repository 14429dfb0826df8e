import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PageLists } from '#gpu-host/protocol/fields.ts';
import { FrameWriter } from '#gpu-host/protocol/frames.ts';
import { encodeCall, type Operation } from '#gpu-host/protocol/operations.ts';
import { FRAME } from '#gpu-host/protocol/wire.ts';
import { Mirror } from './mirror.ts';

const OPEN: Operation = {
  op: 'open-inferlet',
  name: 'one',
  epoch: 0,
  tenant: 'acme',
  functionName: 'f',
  traceparent: '',
  arrival: 1,
  maxPages: 0,
  maxPriority: 0,
  firstTokenMs: 0,
  perTokenMs: 0,
  family: '',
  familyEpoch: 0,
  familyPages: 0,
  tenantPages: { pages: null, readAt: 0 },
};
const encode = (encoder: number): Operation => ({
  op: 'encode',
  encoder,
  tokens: Uint32Array.of(5),
  lengths: Uint32Array.of(1),
  firsts: Uint32Array.of(1),
});

/** Sends calls to the mirror of a host with one model, one encoder and no open queue. Returns why the connection ends; undefined if it goes on. */
function endAfter(...operations: readonly Operation[]): unknown {
  const mirror = new Mirror({ models: 1, encoders: 1 }, () => undefined);
  const writer = new FrameWriter();
  writer.begin(FRAME.hello);
  writer.putText('{"processId":1,"versions":{"oldest":1,"newest":1}}');
  writer.end();
  const lists = new PageLists();
  for (const operation of operations) encodeCall(writer, lists, { inferlet: 1, queue: 0, id: 1 }, operation);
  mirror.push(writer.take());
  return mirror.end;
}

test('the mirror accepts calls that need no queue, and ends a connection that calls an unknown encoder, queue or inferlet', () => {
  const queueless = [{ op: 'encode-stop' }, { op: 'run-stop' }, { op: 'set-waiting', waiting: true }] as const;
  assert.equal(endAfter(OPEN, encode(0), ...queueless, encode(0)), undefined);
  assert.equal(endAfter(OPEN, encode(1)), 'not-open');
  assert.equal(endAfter(OPEN, { op: 'synchronize' }), 'not-open');
  assert.equal(endAfter(encode(0)), 'not-open');
});
