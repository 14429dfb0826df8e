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
  /** A monitor without a timer: the test triggers each check by `tick`. */
  function make() {
    let check: (() => void) | undefined;
    const monitor = new WaitMonitor((repeated) => {
      check = repeated;
      return () => {
        check = undefined;
      };
    });
    const waits = monitor.watch();
    const device = new Device();
    waits.addDevice(device);
    const tick = () => check?.();
    return { monitor, waits, device, tick, isChecking: () => check !== undefined };
  }

  it('reports to a device when a wait lasts and when it ends', async () => {
    const { waits, device, tick } = make();
    const wait = Promise.withResolvers<number>();
    assert.equal(waits.during(wait.promise), wait.promise);
    tick();
    assert.deepEqual(device.changes, [], 'the first check only notes the wait');
    tick();
    tick();
    assert.deepEqual(device.changes, [true]);
    wait.resolve(7);
    await wait.promise;
    assert.deepEqual(device.changes, [true, false]);
  });

  it('does not report a wait while calls are pending or were just issued', () => {
    const { waits, device, tick } = make();
    void waits.during(new Promise(() => undefined));
    device.pendingCalls = 1;
    for (let i = 0; i < 5; i++) tick();
    device.pendingCalls = 0;
    for (let i = 0; i < 5; i++) {
      device.call();
      tick();
    }
    assert.deepEqual(device.changes, []);
    tick();
    assert.deepEqual(device.changes, [true]);
    device.call();
    tick();
    assert.deepEqual(device.changes, [true, false]);
    tick();
    assert.deepEqual(device.changes, [true, false, true], 'reported again by the first check without a new call');
  });

  it('reports to every device, also to one that was added later, and withdraws the report when any wait ends', async () => {
    const { waits, device, tick } = make();
    const short = Promise.withResolvers<void>();
    void waits.during(new Promise(() => undefined));
    void waits.during(short.promise);
    tick();
    tick();
    const laterDevice = new Device();
    waits.addDevice(laterDevice);
    tick();
    assert.deepEqual([device.changes, laterDevice.changes], [[true], [true]]);
    short.resolve();
    await short.promise;
    assert.deepEqual(
      [device.changes, laterDevice.changes],
      [
        [true, false],
        [true, false],
      ],
    );
  });

  it('checks only while a wait is open, and treats a failed wait as ended', async () => {
    const { waits, device, tick, isChecking } = make();
    assert.equal(isChecking(), false);
    const failing = Promise.reject(new Error('no'));
    await assert.rejects(waits.during(failing));
    assert.equal(isChecking(), true);
    tick();
    assert.equal(isChecking(), false);
    for (let i = 0; i < 3; i++) {
      await waits.during(Promise.resolve());
      tick();
    }
    assert.deepEqual(device.changes, [], 'short waits are never reported');
  });

  it('reports each wait only at its own second check, and calls `onWaitEnd` when a wait ends', async () => {
    const { monitor, tick, isChecking } = make();
    let endedCount = 0;
    const waits = monitor.watch(() => endedCount++);
    const device = new Device();
    waits.addDevice(device);
    const first = Promise.withResolvers<void>();
    void waits.during(first.promise);
    tick();
    first.resolve();
    await first.promise;
    assert.equal(endedCount, 1);
    tick();
    assert.equal(isChecking(), false);
    void waits.during(new Promise(() => undefined));
    assert.equal(isChecking(), true);
    tick();
    assert.deepEqual(device.changes, [], 'the first check during the second wait only notes that wait');
    tick();
    assert.deepEqual(device.changes, [true]);
  });
});
