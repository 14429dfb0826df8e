/** Share of contended cores: `usual` is an equal share, `background` a sixth of that, and `heavy` 3 % of that. */
export type CoreWeight = 'usual' | 'background' | 'heavy';

/** Nice value of the session for each weight: `background` gets 17 % and `heavy` 3 % of the share of nice 0. */
export const SESSION_NICE: Readonly<Record<CoreWeight, number>> = { usual: 0, background: 8, heavy: 15 };
/** `cpu.weight` of the control group for each weight, with the same ratios. 100 is the kernel's default. */
export const GROUP_WEIGHT: Readonly<Record<CoreWeight, number>> = { usual: 100, background: 17, heavy: 3 };

/** Returns the weight for the kernel's number; null when the kernel reports none. An unknown number counts as usual. */
export function weightOf(
  numbers: Readonly<Record<CoreWeight, number>>,
  reported: string | undefined,
): CoreWeight | null {
  if (!reported) return null;
  return (['background', 'heavy'] as const).find((weight) => numbers[weight] === Number(reported)) ?? 'usual';
}
