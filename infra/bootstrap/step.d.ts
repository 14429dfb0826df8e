export function runStep(
  root: string,
  node: string,
  args: string[],
  deadline: AbortSignal,
): Promise<{ code: number; unfinished: string[] | null }>;
