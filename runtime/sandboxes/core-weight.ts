/** How much of the cores a confined process gets while others want them: as much as anybody, a sixth of that beside work for invocations, or next to nothing. */
export type CoreWeight = 'usual' | 'background' | 'heavy';

/** By the nice of its session: 17 % and 3 % of a core beside one of nice 0. */
export const SESSION_NICE: Readonly<Record<CoreWeight, number>> = { usual: 0, background: 8, heavy: 15 };
/** By the weight of its control group, likewise. 100 is the kernel's default. */
export const GROUP_WEIGHT: Readonly<Record<CoreWeight, number>> = { usual: 100, background: 17, heavy: 3 };

/** The weight that the kernel's number stands for; null when it tells none. One that a process gave itself counts as the usual one. */
export function weightOf(numbers: Readonly<Record<CoreWeight, number>>, told: string | undefined): CoreWeight | null {
  if (!told) return null;
  return (['background', 'heavy'] as const).find((weight) => numbers[weight] === Number(told)) ?? 'usual';
}
