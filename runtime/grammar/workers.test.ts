import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Asker, type WorkerLink, Workers } from './workers.ts';

const PATIENT_MS = 60_000;
const OPTIONS = { idleMs: PATIENT_MS, placeMs: PATIENT_MS, startMs: PATIENT_MS, turnMs: 2000, heapMb: 256 };
const GUEST: Asker = { refuse: () => null, charge: () => undefined };

describe('Workers', () => {
  it('leaves a tenant its worker between two calls while its turn lasts', async () => {
    let ended = 0;
    const workers = new Workers({ ...OPTIONS, maxWorkers: 1, onEnd: () => (ended += 1) });
    const ask = (link: WorkerLink) => link.request({ kind: 'forget', grammar: 1 }, PATIENT_MS, GUEST);
    const decode = async (tenant: string) => {
      for (let token = 0; token < 20; token += 1) {
        assert.equal((await workers.with(tenant, ask)).tag, 'ok');
        await sleep(5);
      }
    };
    await Promise.all(['one', 'two', 'three'].map(decode));
    // If a tenant lost its worker between its calls, nearly all of the 60 calls would need a new worker.
    assert.ok(ended <= 15, `${ended} workers ended in favour of others`);
    await workers.close();
  });
});
