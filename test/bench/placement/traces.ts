import { randomFrom } from '../../harness/random.ts';
import { logNormal, poisson } from '../load.ts';
import { earlierContexts, workOf } from './bound.ts';
import {
  type Context,
  type HostChange,
  type HostShape,
  PAGE_TOKENS,
  type Trace,
  type TracedInvocation,
} from './trace.ts';

export interface TraceSize {
  readonly hosts: number;
  readonly tenants: number;
  readonly invocations: number;
  /** Work of the trace, divided by the work that all hosts could do in its time with full batches. */
  readonly load: number;
}

const MEAN_PROMPT = 200;
const MEAN_OUTPUT = 120;
const MAX_PROMPT = 1500;
const MAX_OUTPUT = 600;
/** Tokens of output that admission expects: the 95th percentile of the outputs drawn below. */
const EXPECTED_OUTPUT = 380;
const PREFIX_TOKENS = 512;
const PAGES = 1024;
const BURST_SIZE = 200;
/** Time in which the invocations of a burst arrive. */
const BURST_MS = 500;
const MAX_TURNS = 6;
/** Mean time between the beginnings of two turns of a session. */
const MEAN_TURN_MS = 6000;
/** Minimum time between the beginnings of two turns of a session. */
const MIN_TURN_MS = 4000;
/** Share of the trace's time for which a host that leaves stays away. */
const AWAY_SHARE = 0.1;

type Random = () => number;
/** An invocation without its arrival time. `afterMs` is the time since the previous invocation of its session or burst. */
type Draft = Omit<TracedInvocation, 'atMs' | 'id'> & { readonly afterMs?: number };

/** A kind of load. Its invocations come in groups that arrive one after another. */
interface Kind {
  readonly name: string;
  /** Draws the group of this number. */
  readonly group: (random: Random, tenants: Tenants, number: number) => Draft[];
  readonly hosts?: (count: number, random: Random) => HostShape[];
  readonly changes?: (hosts: number, durationMs: number, random: Random) => HostChange[];
}

interface Tenants {
  readonly count: number;
  readonly zipf: (random: Random) => number;
}

const KINDS: readonly Kind[] = [
  { name: 'uniform', group: (random, { count }) => [single(random, uniform(random, count))] },
  { name: 'Zipf tenants, shared prefixes', group: (random, { zipf }) => [prefixed(random, zipf(random))] },
  {
    name: 'bursts',
    // This probability makes half of the invocations arrive in bursts and the other half alone.
    group: (random, { count }) => {
      const tenant = uniform(random, count);
      if (random() > 1 / (BURST_SIZE + 1)) return [single(random, tenant)];
      return Array.from({ length: BURST_SIZE }, () => ({
        ...prefixed(random, tenant),
        afterMs: BURST_MS / BURST_SIZE,
      }));
    },
  },
  { name: 'sessions and exports', group: session },
  {
    name: 'unlike hosts',
    group: (random, { count }) => [prefixed(random, uniform(random, count))],
    hosts: (count, random) =>
      hostsOf(count, () => ({ speed: 2 ** (uniform(random, 3) - 1), pages: PAGES * 2 ** (uniform(random, 3) - 1) })),
  },
  {
    name: 'hosts leave and join',
    group: (random, { count }) => [prefixed(random, uniform(random, count))],
    // The first host stays, so that there always is one.
    changes: (hosts, durationMs, random) =>
      Array.from({ length: hosts - 1 }, (_, i): HostChange[] => {
        const atMs = random() * durationMs * (1 - AWAY_SHARE);
        return [
          { atMs, host: i + 1, kind: random() < 0.5 ? 'drain' : 'crash' },
          { atMs: atMs + AWAY_SHARE * durationMs, host: i + 1, kind: 'join' },
        ];
      })
        .flat()
        .sort((a, b) => a.atMs - b.atMs),
  },
];

export const TRACE_NAMES: readonly string[] = KINDS.map(({ name }) => name);

/** Draws a trace of the kind `name`. Equal seeds give equal traces. The invocations arrive at the mean rate that results in the load `size.load`. */
export function makeTrace(name: string, size: TraceSize, seed: number): Trace {
  const kind = KINDS.find((each) => each.name === name);
  if (kind === undefined) throw new Error(`There is no trace "${name}".`);
  const random = randomFrom(seed);
  const hosts = (kind.hosts ?? equalHosts)(size.hosts, random);
  const tenants = { count: size.tenants, zipf: zipfOf(size.tenants) };
  const groups: Draft[][] = [];
  for (let count = 0; count < size.invocations; count += groups.at(-1)?.length ?? 1)
    groups.push(kind.group(random, tenants, groups.length));
  const durationMs = durationOf(groups.flat(), hosts, size.load);
  const beginnings = poisson((groups.length * 1000) / durationMs, random);
  const timed = groups.flatMap((group) => {
    let atMs = beginnings.next().value as number;
    return group.map(({ afterMs = 0, ...draft }, i) => {
      atMs += i === 0 ? 0 : afterMs;
      return { ...draft, atMs };
    });
  });
  return {
    name,
    hosts,
    changes: kind.changes?.(size.hosts, durationMs, random) ?? [],
    invocations: timed.sort((a, b) => a.atMs - b.atMs).map((draft, i) => ({ ...draft, id: `inv-${seed}-${i}` })),
  };
}

/** Time in which all hosts would do the work if every batch were full and every context found, divided by the load. */
function durationOf(drafts: readonly Draft[], hosts: readonly HostShape[], load: number): number {
  const known = earlierContexts();
  const speed = hosts.reduce((sum, host) => sum + host.speed, 0);
  const invocations = drafts.map((draft) => ({ ...draft, id: '', atMs: 0 }));
  const work = invocations.reduce((sum, each) => sum + workOf({ hosts }, each, known(each)), 0);
  return work / speed / load;
}

function single(random: Random, tenant: number, context?: Context): Draft {
  const prompt = (context?.tokens ?? 0) + draw(MEAN_PROMPT, MAX_PROMPT, random);
  const output = draw(MEAN_OUTPUT, MAX_OUTPUT, random);
  const pages = Math.ceil((prompt + Math.max(output, EXPECTED_OUTPUT)) / PAGE_TOKENS);
  return { tenant: `tenant-${tenant}`, prompt, output, pages, ...(context && { context, affinity: context.name }) };
}

const prefixed = (random: Random, tenant: number): Draft =>
  single(random, tenant, {
    name: `prefix of ${tenant}`,
    tokens: PREFIX_TOKENS,
    keeps: PREFIX_TOKENS,
    exported: false,
  });

/** Draws the turns of a session. Each prompt begins with all earlier turns. Every second session saves its context as an export. */
function session(random: Random, { count }: Tenants, number: number): Draft[] {
  const tenant = uniform(random, count);
  const exported = number % 2 === 1;
  let history = 0;
  return Array.from({ length: 2 + uniform(random, MAX_TURNS - 1) }, () => {
    const name = `session ${number}`;
    const turn = single(random, tenant, { name, tokens: history, keeps: 0, exported });
    history = turn.prompt + turn.output;
    const afterMs = MIN_TURN_MS - (MEAN_TURN_MS - MIN_TURN_MS) * Math.log(1 - random());
    return { ...turn, afterMs, context: { name, tokens: turn.context?.tokens ?? 0, keeps: history, exported } };
  });
}

const equalHosts = (count: number): HostShape[] => hostsOf(count, () => ({ speed: 1, pages: PAGES }));

const hostsOf = (count: number, shapeOf: () => Omit<HostShape, 'name'>): HostShape[] =>
  Array.from({ length: count }, (_, i) => ({ name: `gpu-host-${i}`, ...shapeOf() }));

const draw = (average: number, most: number, random: Random): number =>
  Math.min(most, Math.max(1, Math.round(logNormal(average, random))));

const uniform = (random: Random, count: number): number => Math.floor(random() * count);

/** Numbers below `count` whose frequencies fall as 1, 1/2, 1/3, … */
function zipfOf(count: number): (random: Random) => number {
  let sum = 0;
  const sums = Array.from({ length: count }, (_, i) => {
    sum += 1 / (i + 1);
    return sum;
  });
  return (random) => {
    const at = random() * sum;
    let [low, high] = [0, count - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((sums[middle] ?? 0) > at) high = middle;
      else low = middle + 1;
    }
    return low;
  };
}
