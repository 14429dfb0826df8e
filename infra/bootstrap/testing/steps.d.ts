/** One command of the tests, run by the pinned Node. */
export interface Step {
  readonly title: string;
  /** Deadline, several times the step's duration on two quiet cores. */
  readonly minutes: number;
  /** Arguments of Node, without the patterns of test files. */
  readonly args: readonly string[];
  /** Patterns of test files. */
  readonly files?: readonly string[];
  /** Environment variables of the tests, besides those of the command. */
  readonly variables?: Readonly<Record<string, string>>;
  /** First steps of other lanes that run at the same time. A lane is a step and the chain of its `next` steps. */
  readonly beside?: readonly Step[];
  /** The step that follows this one in its lane if this one passes. */
  readonly next?: Step;
}

/** The steps of each command of package.json that runs tests, in their order. Each test file is in one of the two. */
export const TIERS: { readonly test: readonly Step[]; readonly 'test:ci': readonly Step[] };

/**
 * The steps of a command with these arguments: those of `npm test` for none, of `npm run test:ci` for `--ci`, and of both for `--all`. Further
 * arguments are patterns of test files, or options of Node's runner: then the only step runs these tests.
 */
export function stepsFor(args: readonly string[]): readonly Step[];

/** Names of the files of `test/e2e` that share a platform, as the alternatives of a pattern. */
export const PLAIN: string;
