import { setTimeout as sleep } from 'node:timers/promises';
import type { GpuHostState } from '../../app/resources/operations.ts';
import type { PieClient } from '../../client/client.ts';
import { defineCommand } from '../command.ts';
import { EXIT } from '../failure.ts';
import { showHosts } from '../gpu-hosts.ts';
import { runningText, undrainedMeanwhile } from './machines.ts';

const name = { name: 'host', help: 'name of the GPU host, such as gpu-host-2', required: true } as const;
const POLL_MS = 1000;

export const gpuHostsList = defineCommand({
  name: 'gpu-hosts list',
  summary: 'List the GPU hosts and their models and devices (operators)',
  description: 'The same as `pie ps --hosts`.',
  byDefault: true,
  examples: [{ line: 'pie gpu-hosts', does: 'shows models, memory and load of each device' }],
  async run({ terminal, signal, connect }) {
    const { client } = await connect();
    showHosts(terminal, await client.operations.load({ signal }));
    return EXIT.ok;
  },
});

export const gpuHostsDrain = defineCommand({
  name: 'gpu-hosts drain',
  summary: 'Start nothing new on a GPU host, and let its invocations end (operators)',
  description:
    'New invocations go to the other hosts. Running invocations and their children finish. The drain outlasts restarts, until `pie gpu-hosts undrain`.',
  arguments: [name],
  options: [
    { flags: '--wait', help: 'wait until nothing runs there' },
    { flags: '--force', help: 'drain even the last GPU host: new invocations then wait' },
  ],
  examples: [
    { line: 'pie gpu-hosts drain gpu-host-2 --wait', does: 'drains the host, for example to replace its card' },
  ],
  async run({ args: [host], options, terminal, signal, connect }) {
    const { client } = await connect();
    const change = { drained: true, ...(options.force && { force: true }) };
    let state = await client.operations.changeGpuHost(host, change, { signal });
    if (options.wait && state.running > 0) {
      terminal.note(`${runningText(state)}; waiting for that …`);
      state = await waitUntilEmpty(client, state, signal);
    }
    terminal.value(state);
    terminal.print(`Drained ${host}. ${runningText(state)}.`);
    return EXIT.ok;
  },
});

export const gpuHostsUndrain = defineCommand({
  name: 'gpu-hosts undrain',
  summary: 'Let a drained GPU host take new invocations again (operators)',
  description: 'New invocations may run there again, with the contexts that earlier invocations saved there.',
  arguments: [name],
  examples: [{ line: 'pie gpu-hosts undrain gpu-host-2', does: 'uses the host again' }],
  async run({ args: [host], terminal, signal, connect }) {
    const { client } = await connect();
    const state = await client.operations.changeGpuHost(host, { drained: false }, { signal });
    terminal.value(state);
    terminal.print(`${host} takes new invocations${state.connected ? '' : ' once it is connected'}.`);
    return EXIT.ok;
  },
});

/**
 * Waits for a report that nothing runs on the host. While no runtime reports the host at all, invocations may still run there, so the wait continues.
 * Throws {@link Failure} when the host's drain ends meanwhile.
 */
async function waitUntilEmpty(client: PieClient, state: GpuHostState, signal: AbortSignal): Promise<GpuHostState> {
  for (let reported: GpuHostState | undefined = state; ; ) {
    if (reported?.drained === false) throw undrainedMeanwhile(state.name);
    if (reported?.running === 0) return reported;
    await sleep(POLL_MS, undefined, { signal });
    reported = (await client.operations.load({ signal })).gpuHosts.find(({ name }) => name === state.name);
  }
}
