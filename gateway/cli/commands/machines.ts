import { setTimeout as sleep } from 'node:timers/promises';
import { ROLES, type Role } from '#scheduler/machines/types.ts';
import type {
  EncoderLoad,
  GpuHostState,
  HostedModel,
  MachineState,
  ModelLoad,
  PlatformLoad,
} from '../../app/control.ts';
import { backendText, deviceText, hostState, machineState } from '../../app/resources/platform-texts.ts';
import type { PieClient } from '../../client/client.ts';
import { defineCommand } from '../command.ts';
import { EXIT, Failure } from '../failure.ts';
import { ago, bytes, number, parseSpan } from '../format.ts';
import { home } from '../paths.ts';
import { runProgram } from '../programs.ts';

import type { Terminal } from '../terminal.ts';

const machine = { name: 'machine', help: 'name of the machine, as `pie machines` shows it', required: true } as const;
const POLL_MS = 1000;

function parseRoles(text: string): Role[] {
  const names = text.split(',').map((name) => name.trim());
  const roles = ROLES.filter((role) => names.includes(role));
  const wrong = names.find((name) => !(ROLES as readonly string[]).includes(name));
  if (wrong !== undefined) throw new Failure(`"${wrong}" is not a role.`, { advice: `Roles are ${ROLES.join(', ')}.` });
  return roles;
}

export const machinesList = defineCommand({
  name: 'machines list',
  summary: 'List the machines of the platform (operators)',
  description:
    'Shows the machines that share this platform’s Redis: their roles, and whether each supervisor runs. A machine that died is shown as "gone" for an hour, or until it returns. A machine that joined with a token and does not run, because it was stopped or never started, is "stopped"; other machines leave the list when they stop. A drained machine that does not run is "drained, stopped" or "drained, gone": its drain holds at its next start.',
  byDefault: true,
  examples: [
    { line: 'pie machines', does: 'lists them' },
    { line: 'pie machines --json', does: 'prints one JSON object a line' },
  ],
  async run({ terminal, signal, connect }) {
    const { client } = await connect();
    const { machines } = await client.operations.load({ signal });
    for (const each of machines) terminal.value(each);
    terminal.table(
      ['MACHINE', 'STATE', 'ROLES', 'RUNNING', 'HOST', 'VERSION', 'STARTED'],
      machines.map((each) => [
        each.name,
        machineState(each),
        each.roles.join(', '),
        number(each.running),
        each.host ?? '–',
        each.version ?? '–',
        each.startedAt === null ? '–' : ago(each.startedAt),
      ]),
      'No machine is registered: this gateway runs without a supervisor (`pie up`).',
    );
    return EXIT.ok;
  },
});

export const machinesDrain = defineCommand({
  name: 'machines drain',
  summary: 'Start nothing new on a machine, and let its invocations end (operators)',
  description:
    'Its runtime and its GPU hosts take no new invocations. Running invocations and their children finish, at the latest after their wall time. Its gateway continues to serve. The drain outlasts restarts, until `pie machines undrain`.',
  arguments: [machine],
  options: [
    { flags: '--wait', help: 'wait until nothing runs there' },
    { flags: '--force', help: 'drain even the last machine: new invocations then wait' },
  ],
  examples: [{ line: 'pie machines drain east-1 --wait', does: 'drains the machine, for example before a restart' }],
  async run({ args: [name], options, terminal, signal, connect }) {
    const { client } = await connect();
    const change = { drained: true, ...(options.force && { force: true }) };
    let state = await client.operations.changeMachine(name, change, { signal });
    if (options.wait && state.running > 0) {
      terminal.note(`${runningText(state)}; waiting for that …`);
      state = await waitUntilEmpty(client, state, signal);
    }
    terminal.value(state);
    terminal.print(`Drained ${name}. ${runningText(state)}.`);
    return EXIT.ok;
  },
});

export const machinesUndrain = defineCommand({
  name: 'machines undrain',
  summary: 'Let a drained machine take new invocations again (operators)',
  description: 'Ends the drains of its GPU hosts as well.',
  arguments: [machine],
  examples: [{ line: 'pie machines undrain east-1', does: 'uses the machine again' }],
  async run({ args: [name], terminal, signal, connect }) {
    const { client } = await connect();
    const state = await client.operations.changeMachine(name, { drained: false }, { signal });
    terminal.value(state);
    terminal.print(`${name} takes new invocations${state.alive ? '' : ' once it runs'}.`);
    return EXIT.ok;
  },
});

/** The invocations that a drained machine or GPU host still runs. */
export const runningText = ({ running }: Pick<MachineState, 'running'>): string =>
  running === 0
    ? 'Nothing runs there'
    : `${number(running)} ${running === 1 ? 'invocation still runs' : 'invocations still run'} there`;

/** The failure of a wait for a machine or GPU host that another operator undrained. */
export const undrainedMeanwhile = (name: string): Failure =>
  new Failure(`${name} is no longer drained.`, {
    exitCode: EXIT.refused,
    code: 'conflict',
    advice: 'Another operator undrained it: see `pie audit`.',
  });

/** Waits until nothing runs on the machine. Throws {@link Failure} when its drain ends meanwhile. */
async function waitUntilEmpty(client: PieClient, state: MachineState, signal: AbortSignal): Promise<MachineState> {
  for (let latest: MachineState | undefined = state; ; ) {
    // A machine that left the list has stopped, so nothing runs there.
    if (latest === undefined) return { ...state, running: 0 };
    if (!latest.drained) throw undrainedMeanwhile(state.name);
    if (latest.running === 0) return latest;
    await sleep(POLL_MS, undefined, { signal });
    latest = (await client.operations.load({ signal })).machines.find(({ name }) => name === state.name);
  }
}

export const machinesRemove = defineCommand({
  name: 'machines remove',
  summary: 'Remove a machine for good (operators)',
  description:
    'Its supervisor stops all its processes, other machines end their links to it at once, and a later start with its certificate is refused. The Redis user of a machine that has joined with a token is removed, too. To let it come back, give it a new home and a new token; without tokens, delete machine.pem in its home.',
  arguments: [machine],
  examples: [{ line: 'pie machines remove east-1', does: 'removes the machine east-1' }],
  async run({ args: [name], terminal, signal, connect }) {
    const { client } = await connect();
    await client.operations.removeMachine(name, { signal });
    terminal.value({ removed: name });
    terminal.print(`Removed ${name}.`);
    return EXIT.ok;
  },
});

export const machinesToken = defineCommand({
  name: 'machines token',
  summary: 'Make a token with which one machine may join (operators)',
  description:
    'Prints the command for the new machine. The token works once, until it expires. The gateway needs a Redis that other machines reach, and a Redis user that may create users.',
  options: [
    {
      flags: '--role <roles>',
      help: 'what it may run: gateway, runtime, gpu-host, separated by commas (default: all)',
      parse: parseRoles,
    },
    { flags: '--expires <span>', help: 'time until it expires, 1m to 1d (default: 15m)', parse: parseSpan },
  ],
  examples: [
    { line: 'pie machines token', does: 'prints the command to run on the new machine' },
    { line: 'pie machines token --role gpu-host', does: 'makes one for a machine that may have GPU hosts only' },
  ],
  async run({ options, terminal, signal, connect }) {
    const { client, credentials } = await connect();
    const { expires: span, role: roles } = options;
    const request = { ttlSeconds: span === undefined ? undefined : span / 1000, roles };
    const joinToken = await client.operations.createJoinToken(request, { signal });
    terminal.value({ ...joinToken, url: credentials.url });
    const role = roles ? ` --role ${roles.join(',')}` : '';
    terminal.print(`pie join ${credentials.url} --token ${joinToken.token}${role}`);
    terminal.note(`For one machine, until ${joinToken.expiresAt}. It must reach this gateway at ${credentials.url}.`);
    return EXIT.ok;
  },
});

export const join = defineCommand({
  name: 'join',
  summary: 'Add this machine to a platform, and start it',
  description:
    'Exchanges a token of `pie machines token` for the settings of the machine: its own Redis user, the platform’s settings and, unless it runs only GPU hosts, the master key. Writes them and a certificate into the home (PIE_HOME), which must be new. `pie up` starts the machine again later.',
  arguments: [
    { name: 'url', help: 'address of a gateway of the platform, such as http://10.0.0.1:8787', required: true },
  ],
  options: [
    { flags: '--token <token>', help: 'token that an operator has made' },
    { flags: '--name <name>', help: 'name of this machine (default: PIE_MACHINE, else the host’s name)' },
    {
      flags: '--role <roles>',
      help: 'what it runs: gateway, runtime, gpu-host, separated by commas (default: PIE_ROLES, else all)',
    },
    {
      flags: '--address <host>',
      help: 'where other machines reach it (default: PIE_ADDRESS, else the address that reaches the gateway)',
    },
    { flags: '--no-start', help: 'only write the home' },
  ],
  examples: [
    { line: 'pie join http://10.0.0.1:8787 --token pie-join.…', does: 'joins with all roles and starts' },
    {
      line: 'pie join http://10.0.0.1:8787 --token pie-join.… --name gpu-1 --role gpu-host',
      does: 'joins as a machine with GPU hosts only',
    },
  ],
  async run({ args: [url], options, terminal, signal }) {
    const { token, name, role, address } = options;
    if (token === undefined)
      throw new Failure('The token is missing.', {
        advice: 'Create one with `pie machines token` on a machine of the platform.',
      });
    // The packages of this module take longer to load than a short command runs.
    const { joinPlatform } = await import('../join.ts');
    const joined = await joinPlatform({ url, token, home: home(), name, role, address }, signal);
    terminal.value(joined);
    terminal.print(
      `Joined as ${joined.machine} (${joined.roles.join(', ')}); other machines reach it at ${joined.address}.`,
    );
    if (!options.start) return 0;
    return (await runProgram('infra/up.ts', terminal.json ? ['--json'] : [], 'inherit')).code;
  },
});

const name = { name: 'host', help: 'name of the GPU host, such as gpu-host-2', required: true } as const;

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
      state = await waitUntilHostEmpty(client, state, signal);
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
async function waitUntilHostEmpty(client: PieClient, state: GpuHostState, signal: AbortSignal): Promise<GpuHostState> {
  for (let reported: GpuHostState | undefined = state; ; ) {
    if (reported?.drained === false) throw undrainedMeanwhile(state.name);
    if (reported?.running === 0) return reported;
    await sleep(POLL_MS, undefined, { signal });
    reported = (await client.operations.load({ signal })).gpuHosts.find(({ name }) => name === state.name);
  }
}

const HEADING = ['GPU HOST', 'STATE', 'RUNNING', 'MODEL', 'BACKEND', 'DEVICE', 'MEMORY', 'PAGES', 'BUSY', 'BATCH'];

/**
 * Prints a line per model and encoder of each GPU host, with its device and recent load; a single line for a host
 * without any.
 */
export function showHosts(
  terminal: Terminal,
  { gpuHosts, models, encoders }: Pick<PlatformLoad, 'gpuHosts' | 'models' | 'encoders'>,
): void {
  const rows = gpuHosts.flatMap((host) => {
    const loads = models.filter(({ gpuHost }) => gpuHost === host.name);
    const hostEncoders = encoders.filter(({ gpuHost }) => gpuHost === host.name);
    terminal.value({ ...host, load: loads, encoders: hostEncoders });
    const hostCells = [host.name, hostState(host), number(host.running)];
    const modelCells = host.models.map((hosted) =>
      cells(
        hosted,
        loads.find(({ model }) => model === hosted.model),
      ),
    );
    const loadCells = [...modelCells, ...hostEncoders.map(encoderCells)];
    if (loadCells.length === 0) loadCells.push(Array.from({ length: HEADING.length - hostCells.length }, () => '-'));
    return loadCells.map((each) => [...hostCells, ...each]);
  });
  terminal.table(HEADING, rows, 'No GPU host is known. Run `pie doctor` to check the runtime.');
}

function cells(hosted: HostedModel, load: ModelLoad | undefined): string[] {
  const { model, memory, pages } = hosted;
  const used = load && load.pages - load.freePages - load.cachedPages;
  return [
    model,
    backendText(hosted),
    deviceText(hosted),
    memory === null ? '-' : `${bytes(memory.takenBytes)} of ${bytes(memory.totalBytes)}`,
    used === undefined ? number(pages) : `${number(used)} of ${number(pages)}`,
    load ? `${Math.round(100 * load.utilisation)}%` : '-',
    load?.batchSize ? number(load.batchSize) : '-',
  ];
}

function encoderCells({ encoder, kind, device, deviceIndex, utilisation, batchSize }: EncoderLoad): string[] {
  return [
    encoder,
    kind,
    deviceText({ device, deviceIndex }),
    '-',
    '-',
    `${Math.round(100 * utilisation)}%`,
    batchSize ? number(batchSize) : '-',
  ];
}
