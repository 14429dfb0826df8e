import type { GpuHostState, HostedModel, MachineState, ModelInfo, PlatformLoad, Tenant } from '../../control.ts';
import { backendText, deviceText, hostState, machineState } from '../../resources/platform-texts.ts';
import {
  badge,
  bar,
  bytes,
  duration,
  empty,
  type Html,
  html,
  number,
  percent,
  table,
  tile,
  tiles,
} from '../html/parts.ts';
import { demand, once, type Page, type Visit } from '../page.ts';

/** For operators: every tenant, the machines, the GPU hosts, memory and batches of the models and encoders, and the runtimes. */
export function platformPage(visit: Visit): Page {
  demand(visit, 'operator');
  const { control, call } = visit;
  const load = once(() => control.operations.load(call));
  const unproven = once(async () => unprovenOf(await control.provenModels(call)));
  const tenants = once(() => control.tenants.list(call));

  return {
    title: 'Platform',
    place: 'platform',
    head: html`<div class="head"><div class="titles"><h1>Platform</h1><p>All tenants, for operators</p></div></div>`,
    live: true,
    fragments: [
      { id: 'now', look: 'wide bare', render: async () => nowTiles(await load()) },
      {
        id: 'tenants',
        look: 'wide card',
        render: async () => html`<h2>Tenants</h2>${tenantTable(await tenants(), await load())}`,
      },
      {
        id: 'machines',
        look: 'wide card',
        render: async () => html`<h2>Machines</h2>${machineTable((await load()).machines)}`,
      },
      {
        id: 'gpu-hosts',
        look: 'wide card',
        render: async () => html`<h2>GPU hosts</h2>${gpuHostTable((await load()).gpuHosts)}`,
      },
      {
        id: 'models',
        look: 'wide card',
        render: async () => html`<h2>Models</h2>${modelTable(await load(), await unproven())}`,
      },
      {
        id: 'encoders',
        look: 'wide card',
        render: async () => html`<h2>Encoders</h2>${encoderTable(await load(), await unproven())}`,
      },
      {
        id: 'runtimes',
        look: 'wide card',
        render: async () => html`<h2>Runtimes</h2>${runtimeTable((await load()).runtimes)}`,
      },
    ],
  };
}

function nowTiles({ running, waiting, runtimes }: PlatformLoad): Html {
  const aliveRuntimes = runtimes.filter((runtime) => runtime.alive);
  const slots = aliveRuntimes.reduce((sum, runtime) => sum + runtime.slots, 0);
  return html`<h2 class="unseen">Now</h2>${tiles(
    tile('Running', number(running), `of ${number(slots)} slots`),
    tile('Waiting', number(waiting)),
    tile('Runtimes alive', `${aliveRuntimes.length} of ${runtimes.length}`),
  )}`;
}

function tenantTable(tenants: readonly Tenant[], { tenants: busy }: PlatformLoad): Html {
  const loads = new Map(busy.map((entry) => [entry.tenant, entry]));
  return table(
    'Tenants and their load',
    [
      { head: 'Tenant' },
      { head: 'State' },
      { head: 'Running', numeric: true },
      { head: 'Waiting', numeric: true },
      { head: 'Weight', numeric: true },
      { head: 'Latency targets' },
    ],
    tenants.map(({ name, suspended, weight, latency }) => [
      html`<a href="/dashboard?${new URLSearchParams({ tenant: name }).toString()}">${name}</a>`,
      suspended ? badge('suspended', 'bad') : badge('active', 'good'),
      number(loads.get(name)?.running ?? 0),
      number(loads.get(name)?.waiting ?? 0),
      number(weight),
      latency === null ? '–' : `${duration(latency.firstTokenMs)}, ${duration(latency.perTokenMs)} a token`,
    ]),
  );
}

function machineTable(machines: PlatformLoad['machines']): Html {
  if (machines.length === 0)
    return empty('No machine is registered.', html`The supervisor (<code>pie up</code>) registers its machine.`);
  return table(
    'Machines',
    [
      { head: 'Machine' },
      { head: 'State' },
      { head: 'Roles' },
      { head: 'Running' },
      { head: 'Host' },
      { head: 'Version' },
    ],
    machines.map((machine) => {
      const { name, roles, running, host, version } = machine;
      return [name, stateBadge(machine), roles.join(', '), number(running), host ?? '–', version ?? '–'];
    }),
  );
}

function stateBadge(machine: MachineState): Html {
  const { alive, drained, startedAt } = machine;
  let tone = 'wait';
  if (alive && !drained) tone = 'good';
  else if (!alive && startedAt !== null) tone = 'bad'; // It has died.
  return badge(machineState(machine), tone);
}

/** One line per model of each GPU host; a disconnected host shows the models that it last reported. */
function gpuHostTable(hosts: readonly GpuHostState[]): Html {
  if (hosts.length === 0)
    return empty(
      'No GPU host is known.',
      html`Runtimes report the GPU hosts that they use. <code>pie doctor</code> shows what is missing.`,
    );
  return table(
    'GPU hosts and their devices',
    [
      { head: 'GPU host' },
      { head: 'State' },
      { head: 'Running', numeric: true },
      { head: 'Model' },
      { head: 'Backend' },
      { head: 'Device' },
      { head: 'Memory', numeric: true },
      { head: 'KV pages', numeric: true },
    ],
    hosts.flatMap((host) => {
      const { name, models, connected, drained } = host;
      const tone = connected ? 'good' : 'bad';
      const state = badge(hostState(host), drained ? 'wait' : tone);
      const running = number(host.running);
      if (models.length === 0) return [[name, state, running, '–', '–', '–', '–', '–']];
      return models.map((hosted) => [
        name,
        state,
        running,
        hosted.model,
        backendText(hosted),
        deviceText(hosted),
        memoryText(hosted),
        html`${number(hosted.pages)}<small> × ${number(hosted.pageSize)} slots</small>`,
      ]);
    }),
  );
}

function memoryText({ memory }: HostedModel): string {
  return memory === null ? '–' : `${bytes(memory.takenBytes)} of ${bytes(memory.totalBytes)}`;
}

/** Why models and encoders are unproven, by their names. */
type Unproven = ReadonlyMap<string, string>;

function unprovenOf(models: readonly ModelInfo[]): Unproven {
  return new Map(models.flatMap(({ name, unproven }) => (unproven === undefined ? [] : [[name, unproven] as const])));
}

/** A name, marked with the reason when the platform has asked the model in vain. */
function provenName(name: string, unproven: Unproven): Html | string {
  const fault = unproven.get(name);
  return fault === undefined ? name : html`${name} ${badge('unproven', 'bad')}<small> ${fault}</small>`;
}

function modelTable({ models, gpuHosts }: PlatformLoad, unproven: Unproven): Html {
  const hasSeveralHosts = gpuHosts.length > 1;
  if (models.length === 0)
    return empty(
      'No model is served now.',
      html`<code>pie models list</code> shows the models of a machine. A runtime must be alive to serve one.`,
    );
  return table(
    'Memory and batches of each model over the last seconds',
    [
      { head: 'Model' },
      ...(hasSeveralHosts ? [{ head: 'GPU host' }] : []),
      { head: 'KV pages' },
      { head: 'In use', numeric: true },
      { head: 'Cached', numeric: true },
      { head: 'Batch size', numeric: true },
      { head: 'Device busy', numeric: true },
      { head: 'Prefix hits', numeric: true },
    ],
    models.map(({ model, gpuHost, pages, freePages, cachedPages, batchSize, utilisation, hitRate }) => {
      const used = pages - freePages - cachedPages;
      return [
        provenName(model, unproven),
        ...(hasSeveralHosts ? [gpuHost ?? '–'] : []),
        bar(pages === 0 ? 0 : used / pages, `${model}: ${number(used)} of ${number(pages)} KV pages in use`),
        `${number(used)} of ${number(pages)}`,
        number(cachedPages),
        batchSize === null ? '–' : number(batchSize),
        percent(utilisation),
        hitRate === null ? '–' : percent(hitRate),
      ];
    }),
  );
}

function encoderTable({ encoders, gpuHosts }: PlatformLoad, unproven: Unproven): Html {
  const hasSeveralHosts = gpuHosts.length > 1;
  if (encoders.length === 0)
    return empty(
      'No encoder is served now.',
      html`A <code>[[model]]</code> of <code>pie.toml</code> with a <code>kind</code> serves embeddings or scores.`,
    );
  return table(
    'Texts of each encoder over the last seconds',
    [
      { head: 'Encoder' },
      ...(hasSeveralHosts ? [{ head: 'GPU host' }] : []),
      { head: 'Kind' },
      { head: 'Device' },
      { head: 'Texts a second', numeric: true },
      { head: 'Tokens a second', numeric: true },
      { head: 'Batch size', numeric: true },
      { head: 'Batch tokens, at most', numeric: true },
      { head: 'Device busy', numeric: true },
      { head: 'Waiting calls', numeric: true },
    ],
    encoders.map((encoder) => [
      provenName(encoder.encoder, unproven),
      ...(hasSeveralHosts ? [encoder.gpuHost ?? '–'] : []),
      encoder.kind,
      deviceText(encoder),
      number(encoder.textsPerSecond),
      number(encoder.tokensPerSecond),
      encoder.batchSize === null ? '–' : number(encoder.batchSize),
      number(encoder.maxBatchTokens),
      percent(encoder.utilisation),
      number(encoder.waitingCalls),
    ]),
  );
}

function runtimeTable(runtimes: PlatformLoad['runtimes']): Html {
  if (runtimes.length === 0)
    return empty(
      'No runtime is registered.',
      html`Invocations wait for one. <code>pie doctor</code> shows what is missing.`,
    );
  return table(
    'Runtimes',
    [
      { head: 'Runtime' },
      { head: 'State' },
      { head: 'Isolation' },
      { head: 'Limits' },
      { head: 'Slots in use' },
      { head: 'Running', numeric: true },
    ],
    runtimes.map(({ name, alive, isolation, isolationNotice, limits, slots, running }) => [
      name,
      alive ? badge('alive', 'good') : badge('gone', 'bad'),
      isolationCell(isolation, isolationNotice),
      limitsCell(limits),
      bar(slots === 0 ? 0 : running / slots, `${name}: ${running} of ${slots} slots`, true),
      `${number(running)} of ${number(slots)}`,
    ]),
  );
}

/** The kernel's limits on sandboxes. The platform also runs without them; `pie doctor` says how to get the missing ones. */
function limitsCell(limits: PlatformLoad['runtimes'][number]['limits']): Html {
  return limits === null ? html`–` : html`memory: ${limits.memory}<br>demotion: ${limits.demotion}`;
}

/** The layers that confine untrusted work; a notice below the badge names the missing ones. */
function isolationCell(isolation: PlatformLoad['runtimes'][number]['isolation'], notice: string | null): Html {
  if (isolation === null) return html`–`;
  const look = notice === null ? 'good' : 'wait';
  return html`${badge(isolation, look)}${notice === null ? '' : html`<small>${notice}</small>`}`;
}
