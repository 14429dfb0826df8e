export function runStep(
  root: string,
  node: string,
  args: string[],
  deadline: AbortSignal,
  /** `output`: descriptor of the file that takes the step's output. `background`: true to leave the cores to others that want them. */
  options?: { readonly output?: number | 'inherit'; readonly background?: boolean },
): Promise<{
  code: number;
  /** Test files that still ran when the deadline ended the step; null when it did not. */
  unfinished: string[] | null;
  /** Processor time of the step's processes, in seconds. */
  cpuSeconds: number;
}>;
