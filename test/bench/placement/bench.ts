import { randomFrom } from '../../harness/random.ts';
import type { Bench, BenchReport } from '../bench.ts';
import { format, formatSpread, mean, quantile, spread } from '../statistics.ts';
import { boundOf } from './bound.ts';
import { leastLoaded, oracle, platform, randomHost, roundRobin, twoChoices } from './policies.ts';
import { type Policy, simulate } from './simulate.ts';
import type { Trace } from './trace.ts';
import { makeTrace, TRACE_NAMES, type TraceSize } from './traces.ts';

const SIZE: TraceSize = { hosts: 100, tenants: 10_000, invocations: 30_000, load: 0.7 };
const QUICK_INVOCATIONS = 10_000;
const QUICK_TRACES: readonly string[] = ['bursts', 'sessions and exports', 'unlike hosts'];

/** Figures of one policy in one trace. */
interface Figures {
  readonly meanMs: number;
  readonly p99Ms: number;
  readonly waitMs: number;
  readonly firstP99Ms: number;
  /** Share of the contexts' tokens that the hosts already had; NaN without contexts. */
  readonly hitRate: number;
  /** The fullest host's share of reserved pages, averaged over the trace, divided by the mean share of all hosts. */
  readonly imbalance: number;
}

interface Sample {
  readonly seed: number;
  readonly trace: string;
  readonly bound: { readonly meanMs: number; readonly p99Ms: number };
  readonly policies: Readonly<Record<string, Figures>>;
}

/** Placement on 100 GPU hosts against an oracle, in virtual time. */
export const placement: Bench = {
  name: 'placement',
  summary: `${SIZE.hosts} simulated GPU hosts and ${SIZE.tenants} tenants: regret of the placement against an oracle`,
  help: `Plays traces of ${SIZE.invocations} invocations in virtual time: uniform tenants, Zipf tenants with shared prefixes, bursts, sessions
with exports, unlike hosts, and hosts that leave and join. The platform's own functions place the invocations, by tenant and by invocation. The
baselines are random hosts, round robin, the least loaded host, the less loaded of two, and an oracle that knows lengths, contexts and speeds; a
bound below all policies is computed beside. Regret: a policy's mean latency over the oracle's, less 1. A round is a seed. No platform starts.`,
  quick: `${QUICK_TRACES.length} of ${TRACE_NAMES.length} traces (${QUICK_TRACES.join(', ')}), of ${QUICK_INVOCATIONS} invocations instead of ${SIZE.invocations}.`,
  async run({ repetitions, quick, progress }) {
    const size = quick ? { ...SIZE, invocations: QUICK_INVOCATIONS } : SIZE;
    const samples: Sample[] = [];
    for (let seed = 1; seed <= repetitions; seed++)
      for (const name of quick ? QUICK_TRACES : TRACE_NAMES) {
        const trace = makeTrace(name, size, seed);
        const policies = Object.fromEntries(policiesOf(seed).map((policy) => [policy.name, figuresOf(trace, policy)]));
        samples.push({ seed, trace: name, bound: boundOf(trace), policies });
        const regrets = Object.keys(policies).map((each) => `${each} ${format(regretOf(samples.at(-1), each))}`);
        progress(`seed ${seed}, ${name}: ${regrets.join(', ')}`);
      }
    return report(samples, size);
  },
};

const policiesOf = (seed: number): Policy[] => [
  oracle(),
  platform('tenant'),
  platform('invocation'),
  randomHost(randomFrom(seed)),
  roundRobin(),
  leastLoaded(),
  twoChoices(randomFrom(seed)),
];

function figuresOf(trace: Trace, policy: Policy): Figures {
  const { outcomes, hosts } = simulate(trace, policy);
  const latencies = outcomes.map(({ invocation, endMs }) => endMs - invocation.atMs);
  const untilMs = Math.max(...outcomes.map(({ endMs }) => endMs));
  const reservedShares = hosts.map(({ reservedMs }) => reservedMs / untilMs);
  const sumOf = (of: (host: (typeof hosts)[number]) => number) => hosts.reduce((sum, host) => sum + of(host), 0);
  return {
    meanMs: mean(latencies),
    p99Ms: quantile(latencies, 0.99),
    waitMs: mean(outcomes.map(({ invocation, startMs }) => startMs - invocation.atMs)),
    firstP99Ms: quantile(
      outcomes.map(({ invocation, prefilledMs }) => prefilledMs - invocation.atMs),
      0.99,
    ),
    hitRate: sumOf(({ hitTokens }) => hitTokens) / sumOf(({ contextTokens }) => contextTokens),
    imbalance: Math.max(...reservedShares) / mean(reservedShares),
  };
}

const ORACLE = oracle().name;

const regretOf = (sample: Sample | undefined, policy: string, of: 'meanMs' | 'p99Ms' = 'meanMs'): number =>
  (sample?.policies[policy]?.[of] ?? Number.NaN) / (sample?.policies[ORACLE]?.[of] ?? Number.NaN) - 1;

function report(samples: readonly Sample[], size: TraceSize): BenchReport {
  const names = Object.keys(samples[0]?.policies ?? {});
  const rows = [...new Set(samples.map(({ trace }) => trace))].flatMap((trace) => {
    const ofTrace = samples.filter((sample) => sample.trace === trace);
    const bound = [
      trace,
      'bound',
      formatSpread(spread(ofTrace.map((each) => each.bound.meanMs / 1000))),
      formatSpread(
        spread(ofTrace.map((each) => each.bound.meanMs / (each.policies[ORACLE]?.meanMs ?? Number.NaN) - 1)),
      ),
      formatSpread(spread(ofTrace.map((each) => each.bound.p99Ms / (each.policies[ORACLE]?.p99Ms ?? Number.NaN) - 1))),
      '',
      '',
      '',
      '',
    ];
    const policies = names.map((policy) => {
      const cell = (of: (figures: Figures) => number, digits = 2) =>
        formatSpread(spread(ofTrace.flatMap((each) => each.policies[policy] ?? []).map(of)), digits);
      const hasContexts = ofTrace.some((each) => Number.isFinite(each.policies[policy]?.hitRate));
      return [
        trace,
        policy,
        cell(({ meanMs }) => meanMs / 1000),
        formatSpread(spread(ofTrace.map((each) => regretOf(each, policy)))),
        formatSpread(spread(ofTrace.map((each) => regretOf(each, policy, 'p99Ms')))),
        cell(({ waitMs }) => waitMs / 1000),
        cell(({ firstP99Ms }) => firstP99Ms / 1000),
        hasContexts ? cell(({ hitRate }) => hitRate, 3) : '',
        cell(({ imbalance }) => imbalance),
      ];
    });
    return [bound, ...policies];
  });
  return {
    title: `Placement on ${size.hosts} simulated GPU hosts`,
    header: [
      'trace',
      'policy',
      'latency mean, s',
      'regret of the mean',
      'regret of the p99',
      'wait mean, s',
      'first token p99, s',
      'hit rate',
      'fullest host over mean',
    ],
    rows,
    notes: [
      `${size.invocations} invocations of ${size.tenants} tenants, load ${size.load} of what full batches could do. Cells: median and range of the seeds. Virtual time: no noise but the seeds.`,
      'Each tenant has a queue, first come, first served, whose head is placed and then waits for its host; only the oracle lets it wait for any host. Admission reserves the expected pages (95th percentile of the output) for all policies.',
      'A host makes steps of 20 ms and 0.2 ms an input, and takes 128 tokens of a prompt a step. Prefixes and sessions in its free pages are found again, least recently used out first; exports stay.',
      'Regret: the mean or 99th percentile of the latency over that of the oracle, less 1. The oracle knows lengths, contexts and speeds, but places one invocation after another, each where it costs least at that moment: a policy can beat it, and its regret is then negative.',
      'Bound: no policy, with any order of starting, can have a lower mean or 99th percentile.',
    ],
    data: samples,
  };
}
