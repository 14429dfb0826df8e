import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import { Command } from 'ioredis';
import { versionOf } from '../functions/functions.ts';
import type { FunctionVersion } from '../functions/types.ts';
import type { Scheduler } from '../scheduler.ts';
import { beginAttempt, openTestScheduler, submission } from '../testing/fixture.ts';
import { TestRedis } from '../testing/redis.ts';
import { afterLoss, type Conduct, standingOf, WINDOW_MS } from './policy.ts';

const TENANT = 'default';

describe('quarantine', () => {
  let redis: TestRedis;
  let scheduler: Scheduler;
  let other: Scheduler;
  let now = Date.now();
  before(async () => {
    redis = await TestRedis.start();
    scheduler = openTestScheduler(redis, { clock: () => now });
    other = openTestScheduler(redis, { prefix: scheduler.store.keys.prefix, clock: () => now });
  });
  after(async () => {
    await scheduler.close();
    await other.close();
    await redis.stop();
  });

  let content = 0;
  async function deploy(name: string): Promise<FunctionVersion> {
    const componentHash = await scheduler.blobs.put(TENANT, new Uint8Array([7, content++]));
    const manifest = { name };
    const version = versionOf(manifest, componentHash);
    const stored = { name, version, tenant: TENANT, manifest, componentHash, componentBytes: 2, createdAt: now };
    assert.ok((await scheduler.functions.put(stored)).ok);
    return stored;
  }
  const submit = async ({ tenant, name, version }: FunctionVersion, by = tenant) => {
    const options = { tenant: by, function: name, version, functionOwner: tenant, restartable: true, submittedAt: now };
    return (await scheduler.submit(submission(options))).id;
  };
  const standingAt = async (id: string) => {
    const begun = await beginAttempt(scheduler, id, 'r1');
    assert.ok('standing' in begun, JSON.stringify(begun));
    return begun.standing;
  };

  test('losses that two processes note give the standing that the policy computes', async () => {
    const loss = fc.record({ waitMs: fc.nat(WINDOW_MS), isAlone: fc.boolean() });
    await fc.assert(
      fc.asyncProperty(fc.array(loss, { minLength: 1, maxLength: 6 }), async (losses) => {
        const version = await deploy(`random-${content}`);
        const id = await submit(version);
        let expected: Conduct | null = null;
        for (const [i, { waitMs, isAlone }] of losses.entries()) {
          now += waitMs;
          expected = afterLoss(expected, isAlone, now);
          const { quarantine } = i % 2 === 0 ? scheduler : other;
          assert.equal(await quarantine.noteLoss(id, isAlone), standingOf(expected, now));
        }
        const [since] = await scheduler.quarantine.quarantineTimes([version]);
        assert.equal(since, expected?.quarantinedAt ?? null);
        assert.equal(await standingAt(id), standingOf(expected, now));
      }),
      { seed: 13, numRuns: 40 },
    );
  });

  test('losses that are noted at the same time all count', async () => {
    const id = await submit(await deploy('at-once'));
    const standings = [scheduler, other, scheduler, other].map(({ quarantine }) => quarantine.noteLoss(id, true));
    assert.ok((await Promise.all(standings)).includes('quarantined'), 'two losses alone quarantine a version');
    assert.equal(await scheduler.quarantine.noteLoss(id, false), 'quarantined');
  });

  test('a loss that the connection sends twice counts once', async () => {
    const { redis: connection, keys } = scheduler.store;
    const version = await deploy('resent');
    const conduct = keys.conduct(TENANT, 'resent', version.version);
    const id = await submit(version);
    const send = connection.sendCommand.bind(connection);
    let resends = 0;
    connection.sendCommand = (command, ...rest) => {
      // Sends the command twice, as if the first answer had been lost.
      if (resends === 0 && command.name.startsWith('eval') && command.args.includes(conduct)) {
        resends++;
        void send(new Command(command.name, [...command.args]));
      }
      return send(command, ...rest);
    };
    try {
      assert.equal(await scheduler.quarantine.noteLoss(id, true), 'suspect');
    } finally {
      connection.sendCommand = send;
    }
    assert.equal(resends, 1);
    assert.equal(await scheduler.quarantine.noteLoss(id, true), 'quarantined');
  });

  test('a version is quarantined for one tenant: it takes no new invocations, and waiting ones begin as quarantined', async () => {
    const version = await deploy('one');
    const waiting = await submit(version);
    // The second and the third loss are strikes, because the version ran alone in its sandbox. Two strikes quarantine it.
    assert.equal(await scheduler.quarantine.noteLoss(waiting, false), 'suspect');
    assert.equal(await scheduler.quarantine.noteLoss(waiting, true), 'suspect');
    assert.equal(await other.quarantine.noteLoss(waiting, true), 'quarantined');
    await assert.rejects(submit(version), { code: 'quarantined', message: /one@.* is quarantined: twice within ten/ });
    assert.equal(await standingAt(waiting), 'quarantined');
    assert.equal(await standingAt(await submit(version, 'acme')), 'clear', 'the version for another tenant');
    assert.equal(await standingAt(await submit(await deploy('one'))), 'clear', 'another version of the function');
    const [act] = await scheduler.audit.read({ tenant: TENANT, limit: 1 });
    assert.deepEqual(
      [act?.actor, act?.action, act?.target],
      ['platform', 'function.quarantine', `one@${version.version}`],
    );
  });

  test('a child attempt gets the standing of its version', async () => {
    const version = await deploy('child');
    const parent = submission({ tenant: TENANT, submittedAt: now });
    await scheduler.submit(parent);
    const begun = await beginAttempt(scheduler, parent.id, 'r1');
    assert.ok('epoch' in begun);
    const child = async () => {
      const { tenant, function: _, ...rest } = submission({ tenant: TENANT, submittedAt: now });
      const functionFields = { function: 'child', version: version.version, functionOwner: TENANT };
      const familyFields = {
        parent: parent.id,
        parentEpoch: begun.epoch,
        root: parent.id,
        arrival: 1,
        runtimeId: 'r1',
      };
      const outcome = await scheduler.invocations.beginChild(
        { ...rest, ...functionFields, tenant, ...familyFields },
        'token',
      );
      assert.ok('standing' in outcome);
      return { id: rest.id, standing: outcome.standing };
    };
    const first = await child();
    assert.equal(first.standing, 'clear');
    await scheduler.quarantine.noteLoss(first.id, false);
    assert.equal((await child()).standing, 'suspect');
    for (let i = 0; i < 2; i++) await scheduler.quarantine.noteLoss(first.id, true);
    assert.equal((await child()).standing, 'quarantined');
  });

  test('lifting a quarantine deletes the strikes, so the next strike makes the version only a suspect', async () => {
    const version = await deploy('lifted');
    const id = await submit(version);
    for (let i = 0; i < 2; i++) await scheduler.quarantine.noteLoss(id, true);
    assert.deepEqual(await scheduler.quarantine.quarantineTimes([version]), [now]);
    assert.deepEqual(await other.quarantine.lift([version]), [version]);
    assert.deepEqual(await other.quarantine.lift([version]), []);
    assert.deepEqual(await scheduler.quarantine.quarantineTimes([version]), [null]);
    assert.equal(await scheduler.quarantine.noteLoss(await submit(version), true), 'suspect');
  });

  test('suspicion expires, a quarantine does not, and the removal of the version deletes the conduct', async () => {
    const { redis: commands, keys } = scheduler.store;
    const version = await deploy('kept');
    const key = keys.conduct(TENANT, 'kept', version.version);
    const id = await submit(version);
    await scheduler.quarantine.noteLoss(id, true);
    const remainingMs = await commands.pttl(key);
    assert.ok(remainingMs > 0 && remainingMs <= WINDOW_MS, `${remainingMs} ms`);
    await scheduler.quarantine.noteLoss(id, true);
    assert.equal(await commands.pttl(key), -1, 'the quarantine stays until it is lifted');
    // A removed version is deleted only when none of its invocations is open.
    await scheduler.cancel(id, 'enough');
    assert.deepEqual(await scheduler.removals.removeFunction(TENANT, 'kept'), []);
    assert.equal(await commands.exists(key), 0);
  });
});
