import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { before, describe, it } from 'node:test';
import { compileWorld, type HostFunction, type HostTable } from '../lowering/compile.ts';
import { instantiate } from '../lowering/instance.ts';
import { SliceRunner } from '../lowering/slices.ts';
import { type TestProgram, testArtifact, testComponent, testProgram } from '../testing/components.ts';
import { recordingHost, show } from '../testing/recording-host.ts';
import { callNumber } from './calls.ts';
import { asEnding, bothEnds, openInvocation } from './testing/run-remote.ts';

const OPTIONS = { slices: new SliceRunner(), cpuLimitMs: 10_000 };

interface Transcript {
  readonly ending: unknown;
  /** Calls that the runtime answers, in order. */
  readonly runtime: string[];
  /** Calls that the sandbox answers, in order. */
  readonly local: string[];
}

/** A recording host that never refuses events, like a sandbox with credit. */
function recorder() {
  const { host, lines } = recordingHost();
  const send = ((_context: unknown, message: unknown) => {
    lines.push(`session send(${show(message)})`);
    return { tag: 'ok', val: undefined };
  }) as HostFunction;
  const table: HostTable = { ...host, session: { ...host.session, send } };
  return { table, lines };
}

/** Splits the calls by the side that answers them. Cuts the matcher out of a constrained step's line, because its name differs between the runs. */
function split(lines: readonly string[]): Pick<Transcript, 'runtime' | 'local'> {
  const kept = lines.filter((line) => !line.includes(' [resource-drop]'));
  const isRemote = (line: string) => {
    const [, interfaceName = '', name = ''] = /^(\S+) (\S+?)\(/.exec(line) ?? [];
    return callNumber(interfaceName, name) !== undefined;
  };
  return {
    runtime: kept.filter(isRemote),
    local: kept
      .filter((line) => !isRemote(line))
      .map((line) => line.replace(/^(grammar step\(\{.*?\}), \{.*?\}/, '$1')),
  };
}

async function direct(program: TestProgram, input: string): Promise<Transcript> {
  const { table, lines } = recorder();
  const execution = instantiate(program, compileWorld(table), OPTIONS);
  const ended = await execution.start(input);
  execution.dispose();
  return { ending: asEnding(ended), ...split(lines) };
}

async function overTheChannel(program: TestProgram, input: string): Promise<Transcript> {
  const { table, lines } = recorder();
  const { runtime, sandbox } = bothEnds(table, { program, execution: OPTIONS, local: table });
  const { ended, guest } = openInvocation(runtime, { input });
  const ending = await ended;
  assert.equal(guest.held, 0);
  assert.equal(runtime.guests, 0);
  while (sandbox.end.invocations > 0) await new Promise(setImmediate);
  runtime.close();
  return { ending, ...split(lines) };
}

describe('a guest over the channel', () => {
  let program: TestProgram;
  before(async () => {
    const source = await readFile(new URL('../lowering/fixtures/everything.js', import.meta.url), 'utf8');
    program = await testProgram(await testArtifact(await testComponent(source)));
  });

  it("makes the same calls and gets the same answers as a guest in the host's process", {
    timeout: 120_000,
  }, async () => {
    const [local, remote] = [await direct(program, '4'), await overTheChannel(program, '4')];
    assert.deepEqual(local.ending, { tag: 'success', val: '{"rounds":4}' });
    assert.deepEqual(remote.ending, local.ending);
    const { length: runtimeCalls } = local.runtime;
    const { length: localCalls } = local.local;
    // The guest's program calls most functions of the contract.
    assert.ok(runtimeCalls > 600 && localCalls > 10, `${runtimeCalls} and ${localCalls}`);
    for (const side of ['runtime', 'local'] as const) {
      local[side].forEach((line, i) => {
        assert.equal(remote[side][i], line, `${side} call ${i}`);
      });
      assert.equal(remote[side].length, local[side].length);
    }
  });

  it("ends like a guest in the host's process when run throws", { timeout: 240_000 }, async () => {
    const [local, remote] = [await direct(program, '0'), await overTheChannel(program, '0')];
    assert.deepEqual(remote, local);
    assert.ok((local.ending as { tag: string }).tag === 'failure');
  });
});
