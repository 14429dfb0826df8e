import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Random } from '#test/harness/random.ts';
import { DeviceShare, type DeviceTurns } from './device-share.ts';

interface Model {
  readonly turns: DeviceTurns;
  /** Tenants that want a step now. */
  readonly wanting: Set<string>;
  /** Duration of a step, ms. */
  readonly stepMs: number;
  /** Device time so far, ms. */
  usedMs: number;
}

/** Models on one device, which ask for their turns one after another as engines do. */
class Host {
  readonly models: Model[];
  nowMs = 0;

  constructor(stepTimesMs: readonly number[]) {
    const share = new DeviceShare();
    this.models = stepTimesMs.map((stepMs) => {
      const wanting = new Set<string>();
      return { turns: share.join({ tenants: () => wanting }), wanting, stepMs, usedMs: 0 };
    });
  }

  /** Gives each model that wants the device a chance. Returns the models that computed a step. */
  round(): Model[] {
    return this.models.filter((model) => {
      const { turns, wanting, stepMs } = model;
      if (wanting.size === 0 || turns.mustWait()) return false;
      turns.begin(1);
      this.nowMs += stepMs;
      model.usedMs += stepMs;
      turns.end(stepMs);
      return true;
    });
  }

  /** Lets models compute for `ms`. Returns each model's part of that time. */
  partsOf(ms: number): number[] {
    const [from, usedBeforeMs] = [this.nowMs, this.models.map(({ usedMs }) => usedMs)];
    while (this.nowMs < from + ms) this.round();
    return this.models.map(({ usedMs }, i) => (usedMs - (usedBeforeMs[i] ?? 0)) / (this.nowMs - from));
  }
}

const near = (parts: readonly number[], expected: readonly number[]): void => {
  for (const [i, part] of parts.entries()) assert.ok(Math.abs(part - (expected[i] ?? 0)) < 0.01, String(parts));
};

test('DeviceShare gives models with one tenant each the same time, however long their steps are', () => {
  const host = new Host([4, 10, 60]);
  for (const [i, { wanting }] of host.models.entries()) wanting.add(`tenant ${i}`);
  near(host.partsOf(60_000), [1 / 3, 1 / 3, 1 / 3]);
});

test('DeviceShare gives a model a part for each of its tenants', () => {
  const host = new Host([4, 10]);
  for (let i = 0; i < 9; i++) host.models[0]?.wanting.add(`tenant ${i}`);
  host.models[1]?.wanting.add('other');
  near(host.partsOf(60_000), [0.9, 0.1]);
});

test('DeviceShare gives a tenant no more for using several models, and lets each of them go on', () => {
  const host = new Host([10, 10, 30]);
  for (const { wanting } of host.models.slice(0, 2)) wanting.add('many');
  host.models[2]?.wanting.add('one');
  near(host.partsOf(60_000), [0.25, 0.25, 0.5]);
  host.models[2]?.wanting.add('many');
  near(host.partsOf(60_000), [1 / 6, 1 / 6, 2 / 3]);
});

test('DeviceShare gives a model no credit for idle time, and takes nothing back when the model had the device alone', () => {
  const host = new Host([4, 10]);
  const [quick, slow] = host.models as [Model, Model];
  slow.wanting.add('slow');
  near(host.partsOf(50_000), [0, 1]);
  quick.wanting.add('quick');
  near(host.partsOf(5000), [0.5, 0.5]);
  slow.wanting.clear();
  near(host.partsOf(50_000), [1, 0]);
  slow.wanting.add('slow');
  near(host.partsOf(5000), [0.5, 0.5]);
});

test('`isContended` is true when another model uses the device or asks for it, not when it only has calls that cannot run', () => {
  const host = new Host([4, 10]);
  const [quick, slow] = host.models as [Model, Model];
  slow.wanting.add('held');
  const step = ({ turns }: Model, ms: number) => {
    turns.begin(1);
    turns.end(ms);
  };
  step(quick, 4);
  quick.wanting.add('runs');
  quick.turns.begin(1);
  assert.ok(!quick.turns.isContended());
  slow.turns.begin(1);
  assert.ok(quick.turns.isContended(), 'the other model uses the device');
  slow.turns.end(10);
  quick.turns.end(4);
  quick.turns.begin(1);
  assert.ok(!quick.turns.isContended());
  assert.ok(slow.turns.mustWait());
  assert.ok(quick.turns.isContended(), 'the other model waits');
  quick.turns.end(4);
  step(slow, 10);
  quick.turns.begin(1);
  assert.ok(quick.turns.isContended(), 'the other model has had a turn since');
});

test('`isContended` ignores a model whose calls ended while that model waited', () => {
  const host = new Host([4, 10]);
  const [{ turns }, slow] = host.models as [Model, Model];
  host.models[0]?.wanting.add('runs');
  slow.wanting.add('gives up');
  turns.begin(1);
  assert.ok(slow.turns.mustWait());
  slow.wanting.clear();
  turns.end(4);
  turns.begin(1);
  assert.ok(!turns.isContended());
});

test('DeviceShare tells the end of a step to all other models, and the one with the least device time goes next', () => {
  const share = new DeviceShare();
  const ended = { second: 0, third: 0 };
  const first = share.join({ tenants: () => ['one'] });
  const second = share.join({ tenants: () => ['two'] }, { wake: () => (ended.second += 1) });
  const third = share.join({ tenants: () => ['three'] }, { wake: () => (ended.third += 1) });
  third.begin(1);
  third.end(5);
  first.begin(1);
  assert.ok(second.mustWait() && third.mustWait() && second.isUsed());
  assert.ok(third.mustWait());
  first.end(20);
  assert.deepEqual(ended, { second: 2, third: 1 }, 'each model was told of the steps of others, not of its own');
  assert.ok(!second.isUsed());
  assert.ok(third.mustWait(), 'the second model has had less time');
  assert.ok(!second.mustWait());
});

test('DeviceShare announces steps that may take long: steps of many inputs, steps of a slow model, and first steps', () => {
  let announced = 0;
  const share = new DeviceShare(() => announced++);
  const [large, small] = [share.join({ tenants: () => ['one'] }), share.join({ tenants: () => ['two'] })];
  const isLong = (turns: DeviceTurns, inputs: number, ms: number): boolean => {
    const before = announced;
    turns.begin(inputs);
    const isAnnounced = announced > before;
    assert.equal(share.isLong, isAnnounced);
    turns.end(ms);
    assert.equal(share.isLong, false);
    return isAnnounced;
  };
  assert.deepEqual([isLong(large, 1, 4000), isLong(large, 1, 4000), isLong(large, 1, 4000)], [true, true, true]);
  assert.deepEqual([isLong(small, 1, 5), isLong(small, 16, 5), isLong(small, 17, 4000)], [true, false, true]);
  assert.equal(isLong(small, 1, 600), false, 'a long prompt does not make the steps after it long');
  assert.equal(isLong(small, 1, 5), true, 'the last small step was slow');
  for (let step = 0; step < 10; step++) isLong(small, 1, 5);
  assert.equal(isLong(small, 1, 5), false, 'a single slow step is forgotten');
});

test('the device never idles while a model wants a step, and a model gets its part while tenants come and go', () => {
  for (let seed = 1; seed <= 200; seed++) {
    const dice = new Random(seed);
    const host = new Host(Array.from({ length: 1 + dice.below(4) }, () => 1 + dice.below(50)));
    const longestMs = Math.max(...host.models.map(({ stepMs }) => stepMs));
    const steady = host.models[dice.below(host.models.length)] as Model;
    steady.wanting.add('steady');
    let entitledMs = 0;
    for (let round = 0; round < 1000; round++) {
      for (const [i, { wanting }] of host.models.entries()) {
        const tenant = `tenant ${i} ${dice.below(3)}`;
        if (dice.below(10) === 0) wanting.add(tenant);
        if (dice.below(10) === 0) wanting.delete(tenant);
      }
      const weight = host.models.reduce((sum, { wanting }) => sum + wanting.size, 0);
      const beforeMs = host.nowMs;
      assert.ok(host.round().length > 0, `seed ${seed}: no model computed`);
      entitledMs += ((host.nowMs - beforeMs) * steady.wanting.size) / weight;
    }
    // Weights change within steps, so a model may be a few steps short of its part; allow eight. (Theorem 2 of Goyal et al. bounds constant weights.)
    const slackMs = 8 * longestMs;
    assert.ok(steady.usedMs >= entitledMs - slackMs, `seed ${seed}: ${steady.usedMs} of ${entitledMs}`);
  }
});

test('a model that must wait wakes the model that has the device, which may keep it idle while it waits for calls', () => {
  const share = new DeviceShare();
  const woken: string[] = [];
  const [first, second] = ['first', 'second'].map((name) =>
    share.join({ tenants: () => [name] }, { wake: () => woken.push(name) }),
  ) as [DeviceTurns, DeviceTurns];
  first.begin(1);
  assert.deepEqual(woken, []);
  assert.ok(second.mustWait());
  assert.deepEqual(woken, ['first']);
  assert.ok(first.isContended());
});
