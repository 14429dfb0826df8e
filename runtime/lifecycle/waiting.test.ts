import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { type WaitingDevice, WaitMonitor } from './waiting.ts';

/** The GPU host's side of an inferlet, whose calls the test controls. */
class Device implements WaitingDevice {
  pendingCalls = 0;
  issuedCalls = 0;
  readonly changes: boolean[] = [];
  #waiting = false;

  setWaiting(waiting: boolean): void {
    if (waiting !== this.#waiting) this.changes.push(waiting);
    this.#waiting = waiting;
  }

  call(): void {
    this.setWaiting(false);
    this.issuedCalls++;
  }
}

describe('a wait monitor', () => {
  /** A monitor whose looks the test triggers. */
  function make() {
    let look: (() => void) | undefined;
    const monitor = new WaitMonitor((repeated) => {
      look = repeated;
      return () => {
        look = undefined;
      };
    });
    const waits = monitor.watch();
    const device = new Device();
    waits.addDevice(device);
    const turn = () => look?.();
    return { monitor, waits, device, turn, looking: () => look !== undefined };
  }

  it('reports to a device when a wait lasts and when it ends', async () => {
    const { waits, device, turn } = make();
    const wait = Promise.withResolvers<number>();
    assert.equal(waits.during(wait.promise), wait.promise);
    turn();
    assert.deepEqual(device.changes, [], 'the first look only notes the wait');
    turn();
    turn();
    assert.deepEqual(device.changes, [true]);
    wait.resolve(7);
    await wait.promise;
    assert.deepEqual(device.changes, [true, false]);
  });

  it('does not report a wait while calls are pending or were just issued', () => {
    const { waits, device, turn } = make();
    void waits.during(new Promise(() => undefined));
    device.pendingCalls = 1;
    for (let i = 0; i < 5; i++) turn();
    device.pendingCalls = 0;
    for (let i = 0; i < 5; i++) {
      device.call();
      turn();
    }
    assert.deepEqual(device.changes, []);
    turn();
    assert.deepEqual(device.changes, [true]);
    device.call();
    turn();
    assert.deepEqual(device.changes, [true, false]);
    turn();
    assert.deepEqual(device.changes, [true, false, true], 'reported again after the next quiet look');
  });

  it('reports to every device, also one opened later, and ends the report when any wait ends', async () => {
    const { waits, device, turn } = make();
    const short = Promise.withResolvers<void>();
    void waits.during(new Promise(() => undefined));
    void waits.during(short.promise);
    turn();
    turn();
    const late = new Device();
    waits.addDevice(late);
    turn();
    assert.deepEqual([device.changes, late.changes], [[true], [true]]);
    short.resolve();
    await short.promise;
    assert.deepEqual(
      [device.changes, late.changes],
      [
        [true, false],
        [true, false],
      ],
    );
  });

  it('looks only while a wait is open, and treats a failed wait as ended', async () => {
    const { waits, device, turn, looking } = make();
    assert.equal(looking(), false);
    const failing = Promise.reject(new Error('no'));
    await assert.rejects(waits.during(failing));
    assert.equal(looking(), true);
    turn();
    assert.equal(looking(), false);
    for (let i = 0; i < 3; i++) {
      await waits.during(Promise.resolve());
      turn();
    }
    assert.deepEqual(device.changes, [], 'short waits are never reported');
  });

  it('begins anew with each wait, and tells the inferlet when one ends', async () => {
    const { monitor, turn, looking } = make();
    let endedCount = 0;
    const waits = monitor.watch(() => endedCount++);
    const device = new Device();
    waits.addDevice(device);
    const first = Promise.withResolvers<void>();
    void waits.during(first.promise);
    turn();
    first.resolve();
    await first.promise;
    assert.equal(endedCount, 1);
    turn();
    assert.equal(looking(), false);
    void waits.during(new Promise(() => undefined));
    assert.equal(looking(), true);
    turn();
    assert.deepEqual(device.changes, [], 'the first look at the second wait only notes it');
    turn();
    assert.deepEqual(device.changes, [true]);
  });
});
