export function runStep(
  root: string,
  node: string,
  args: string[],
  deadline: AbortSignal,
  options?: {
    /** File that takes its output, by default this process's own. */
    readonly output?: number | 'inherit';
    /** Whether it yields the cores to other steps. */
    readonly background?: boolean;
  },
): Promise<{ code: number; unfinished: string[] | null; cpuSeconds: number }>;
