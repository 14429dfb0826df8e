import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PROTECTED_DEVICE_STEPS } from '#scheduler/policies/preemption.ts';
import type { DeviceMemory } from './device-memory.ts';
import { CallHeld } from './fault.ts';
import type { PageSpace } from './space.ts';
import { makeMemory, type TestMemoryOptions } from './testing/memory.ts';

const PAGES = 16;
const SWAP_PAGES = 1000;

/** Three inferlets by age, in a pool of 16 pages with enough swap. */
function openThree(swap: Partial<TestMemoryOptions> = { swapMemoryPages: SWAP_PAGES }): {
  memory: DeviceMemory;
  spaces: [PageSpace, PageSpace, PageSpace];
} {
  const { memory, open } = makeMemory({
    pages: PAGES,
    preempt: () => undefined,
    ended: () => assert.fail('swap has room'),
    ...swap,
  });
  return { memory, spaces: [open(), open(), open()] };
}

/** Lets an inferlet take pages, leave, and return as after a preemption. */
function returnWith(space: PageSpace, pages: number): void {
  space.allocate(0, pages);
  space.contender.leave();
  space.contender.return();
}

test('while the oldest inferlet waits, the next one counts as the oldest and may preempt a protected family', () => {
  for (const waits of [false, true]) {
    const { memory, spaces } = openThree();
    const [oldest, second, third] = spaces;
    oldest.allocate(0, 2);
    for (const page of oldest.held.keys()) page.filled = 1;
    oldest.waiting = waits;
    returnWith(third, 10);
    if (waits) second.allocate(0, 8);
    else assert.throws(() => second.allocate(0, 8), CallHeld);
    assert.equal(third.contender.isAway, waits);
    memory.audit();
  }
});

test('the protection ends after `PROTECTED_DEVICE_STEPS` steps of the device', () => {
  const { memory, spaces } = openThree();
  const [oldest, second, third] = spaces;
  oldest.allocate(0, 2);
  returnWith(third, 10);
  for (let i = 1; i < PROTECTED_DEVICE_STEPS; i++) memory.stepped();
  assert.throws(() => second.allocate(0, 8), CallHeld);
  assert.equal(third.contender.isAway, false);
  second.contender.return();
  memory.stepped();
  second.allocate(0, 8);
  assert.equal(third.contender.isAway, true);
  memory.audit();
});

test('a family that has returned and waits on I/O keeps no frames from others', () => {
  for (const waits of [false, true]) {
    const { memory, spaces } = openThree();
    const [oldest, second, third] = spaces;
    oldest.allocate(0, 4);
    second.contender.wanted = 8;
    returnWith(second, 1);
    second.waiting = waits;
    third.contender.wanted = 6;
    third.contender.heldCalls = 1;
    third.contender.leave();
    assert.equal(memory.relief.next(), waits ? third.contender : undefined);
    memory.audit();
  }
});

/** Three inferlets in 16 pages: the oldest is running and holds 4, the second holds one and waits for 13 more, the third waits for 6. */
function overtaken(): { memory: DeviceMemory; spaces: [PageSpace, PageSpace, PageSpace] } {
  const { memory, spaces } = openThree();
  const [oldest, second, third] = spaces;
  oldest.allocate(0, 4);
  for (const page of oldest.held.keys()) page.filled = 1;
  second.allocate(0, 1);
  for (const [space, wanted] of [[second, 13] as const, [third, 6] as const]) {
    space.contender.wanted = wanted;
    space.contender.heldCalls = 1;
    space.contender.leave();
  }
  return { memory, spaces };
}

test('a preempted family that does not fit does not keep a newer one from returning', () => {
  const { memory, spaces } = overtaken();
  const [oldest, second, third] = spaces;
  assert.equal(memory.relief.isDue, true);
  assert.equal(memory.relief.next(), third.contender);
  assert.equal(memory.relief.next(), undefined);
  assert.equal(memory.relief.isDue, false);
  third.allocate(0, 6);
  assert.equal(memory.relief.next(), undefined);
  // The second family, first in the queue, returns as soon as the oldest gives pages back.
  oldest.free(Uint32Array.of(0, 1, 2));
  assert.equal(memory.relief.isDue, true);
  assert.equal(memory.relief.next(), second.contender);
  memory.audit();
});

test('a family has no protection from those that it overtook', () => {
  for (const overtakes of [true, false]) {
    const { memory, spaces } = overtaken();
    const [oldest, second, third] = spaces;
    if (overtakes) assert.equal(memory.relief.next(), third.contender);
    else third.contender.return();
    third.allocate(0, 6);
    for (const page of third.held.keys()) page.filled = 1;
    oldest.free(Uint32Array.of(0, 1, 2));
    assert.equal(memory.relief.next(), overtakes ? second.contender : undefined);
    if (!overtakes) second.contender.return();
    if (overtakes) second.allocate(1, 13);
    else assert.throws(() => second.allocate(1, 13), CallHeld);
    assert.equal(third.contender.isAway, overtakes);
    memory.audit();
  }
});

test('no family overtakes another while no older family runs', () => {
  const { memory, spaces } = overtaken();
  spaces[0].waiting = true;
  assert.equal(memory.relief.next(), spaces[1].contender);
  assert.equal(memory.relief.next(), undefined);
  memory.audit();
});

test('a family does not return when it would need room in swap that a failing disk refuses', () => {
  const openFile = () => {
    throw new Error('the disk is full');
  };
  const { memory, spaces } = openThree({
    swapDiskPages: SWAP_PAGES,
    swapFile: { openFile, report: () => undefined },
  });
  const [oldest, second, third] = spaces;
  oldest.allocate(0, 8);
  second.allocate(0, 6);
  for (const page of second.held.keys()) page.filled = 1;
  second.waiting = true;
  assert.throws(() => third.allocate(0, 7), CallHeld);
  third.contender.heldCalls = 1;
  memory.relief.noteChange();
  assert.equal(memory.relief.next(), undefined);
  oldest.free(Uint32Array.of(0, 1, 2, 3, 4, 5));
  assert.equal(memory.relief.next(), third.contender);
  third.allocate(0, 7);
  memory.audit();
});
