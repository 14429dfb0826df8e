/**
 * A throw-away process that makes and runs mutants, which are changed copies of valid components. The parent sends one request at a time,
 * `{seed, index}`; all random choices follow from these two numbers. The process answers `{index, seed, mutations, stage, code, message}`: in the
 * answer, `seed` is the name of the changed component and `code` is the platform's code for the mutant's end. After any thrown error the process
 * answers `{index, fault}` and ends. If it went on, the parent could take a later error of this mutant for the answer to the next mutant.
 */
import { Random } from '../../harness/random.ts';
import { mutant } from './mutate.ts';
import { runMutant } from './run-mutant.ts';
import { readSeeds } from './seeds.ts';

const seeds = await readSeeds();
let current = -1;

const reportFault = (error: unknown): void => {
  const fault = error instanceof Error ? (error.stack ?? error.message) : String(error);
  process.send?.({ index: current, fault }, () => process.exit(1));
};
process.on('uncaughtException', reportFault);
process.on('unhandledRejection', reportFault);
process.on('disconnect', () => process.exit(0));
process.on('message', async ({ seed, index }: { seed: number; index: number }) => {
  current = index;
  const made = mutant(seeds, Random.of(seed, index));
  const about = { index, seed: made.seed, mutations: made.mutations };
  try {
    process.send?.({ ...about, ...(await runMutant(made.bytes)) });
  } catch (error) {
    reportFault(error);
  }
});
process.send?.({ ready: true });
