/** The versions of a protocol that one side speaks, both ends included. */
export interface Versions {
  readonly oldest: number;
  readonly newest: number;
}

/** One side of a connection, as messages name it: `GPU host`. */
export interface Side {
  readonly name: string;
  readonly versions: Versions;
}

/** Highest version number: the frame headers of the GPU protocol have 16 bits for it. */
const MAX_VERSION = 0xffff;

/** The newest version that both sides speak; null when there is none. Both sides compute the same result. */
export function commonVersion(ours: Versions, theirs: Versions): number | null {
  const version = Math.min(ours.newest, theirs.newest);
  // The comparison is also false for NaN: a peer may state something other than a number.
  return version >= Math.max(ours.oldest, theirs.oldest) ? version : null;
}

/** The versions that a peer states as `value`; null if it states none, or nothing that is a range of versions. */
export function statedVersions(value: unknown): Versions | null {
  if (typeof value !== 'object' || value === null) return null;
  const { oldest, newest } = value as Partial<Versions>;
  return isVersion(oldest) && isVersion(newest) && oldest <= newest ? { oldest, newest } : null;
}

/** The reason for which two sides without a common version refuse each other, and what to do about it. */
export function versionRefusal(protocol: string, one: Side, other: Side): string {
  const [old, recent] = one.versions.newest < other.versions.newest ? [one, other] : [other, one];
  return (
    `The ${old.name} is too old for the ${recent.name}: it speaks ${rangeText(old.versions)} of the ${protocol}, ` +
    `the ${recent.name} ${rangeText(recent.versions)}. Install a newer release of Pie on the machine of the ${old.name}.`
  );
}

/** `version 3`, or `versions 3 to 4`. */
function rangeText({ oldest, newest }: Versions): string {
  return oldest === newest ? `version ${newest}` : `versions ${oldest} to ${newest}`;
}

function isVersion(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= MAX_VERSION;
}
