export function runStep(
  root: string,
  node: string,
  args: string[],
  deadline: AbortSignal,
  /** Descriptor of the file that takes the step's output; `inherit`, the default, for this process's output. */
  output?: number | 'inherit',
  /** Further environment variables. */
  variables?: Readonly<Record<string, string>>,
): Promise<{
  code: number;
  /** Test files that still ran when the deadline ended the step; null when the step ended in time. */
  unfinished: string[] | null;
  /** Processor time of the step's processes, in seconds. */
  cpuSeconds: number;
}>;
