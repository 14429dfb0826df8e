export function runStep(
  root: string,
  node: string,
  args: string[],
  deadline: AbortSignal,
  /** File that takes its output, by default this process's own. */
  output?: number | 'inherit',
): Promise<{ code: number; unfinished: string[] | null; cpuSeconds: number }>;
