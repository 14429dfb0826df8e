/**
 * Gives a platform's GPU hosts another batching policy, for comparison. {@link policyEnvironment} preloads this file into every process of the platform;
 * it changes only GPU hosts.
 */
import { Departure } from '#gpu-host/batcher/departure.ts';
import { type BatchPolicy, departureOf } from '#gpu-host/batcher/testing/policies.ts';

const VARIABLE = 'PIE_BENCH_BATCH_POLICY';

/** Environment of a platform whose GPU hosts batch by the policy. */
export function policyEnvironment(policy: BatchPolicy): NodeJS.ProcessEnv {
  return { NODE_OPTIONS: `--import=${import.meta.url}`, [VARIABLE]: JSON.stringify(policy) };
}

const preloaded = process.env[VARIABLE];
if (preloaded !== undefined && process.argv[1]?.endsWith('gpu-host/main.ts')) {
  const policy = JSON.parse(preloaded) as BatchPolicy;
  const ownOf = Departure.ofBatcher;
  Departure.ofBatcher = (grace) => departureOf(policy) ?? ownOf(grace);
}
