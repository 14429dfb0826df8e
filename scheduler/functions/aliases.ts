/** Aliases: names for versions. Chooses the version that an invocation of an alias runs. Pure functions. */

/** The alias that a bare name means. A deploy points it at the new version by default. */
export const LIVE = 'live';
/** Given in place of an alias for a deploy that points no alias at the new version. */
export const NO_ALIAS = 'none';

/** Maximum versions among which one alias divides its invocations. */
export const MAX_SHARES = 10;
/** Maximum aliases and tags of one function. */
export const MAX_ALIASES = 200;
/** States kept in the history of each alias. */
export const MAX_HISTORY = 100;
/** Maximum characters of the message of a change. */
export const MAX_MESSAGE = 500;
/** Minimum digits of a version in a reference: fewer would match too many versions. */
export const MIN_VERSION_PREFIX = 4;

const ALIAS_NAME = /^[a-z][a-z0-9._-]{0,62}$/;
/** A version, or the first digits of one. */
const LIKE_VERSION = /^[0-9a-f]{4,64}$/;
const PERCENT = 100;

/** The part of an alias's invocations that one version runs. */
export interface Share {
  readonly version: string;
  /** Whole percent from 1 to 100; the weights of an alias sum to 100. */
  readonly weight: number;
}

/** A past or present state of an alias. */
export interface AliasState {
  readonly shares: readonly Share[];
  /**
   * Number of the change among the changes of all aliases of the function, from 1; 0 for `live` of a function that was
   * deployed before aliases existed.
   */
  readonly revision: number;
  /** Milliseconds since the Unix epoch. */
  readonly at: number;
  /** Id of the key that made the change. */
  readonly by: string;
  readonly message?: string;
  /** Set by a rollback: the revision whose state it restored. That revision is never a rollback itself. */
  readonly restores?: number;
  /** The alias is a tag: it names one version, a deploy cannot move it to another one, and it keeps no instances ready. */
  readonly tag?: true;
}

/** A named alias in its present state. */
export interface NamedAlias extends AliasState {
  readonly alias: string;
}

/** One fault of an alias; `field` is a JSON pointer into the request, or the name of a parameter. */
export interface AliasFault {
  readonly field: string;
  readonly message: string;
}

/** The fault of an alias's name, or null. */
export function aliasNameFault(alias: string, field = 'alias'): AliasFault | null {
  const fault = (message: string): AliasFault => ({ field, message });
  if (alias === NO_ALIAS) return fault(`"${NO_ALIAS}" means no alias at all`);
  if (!ALIAS_NAME.test(alias)) {
    return fault(
      'must begin with a lower-case letter and hold lower-case letters, digits, ".", "_" and "-", 63 at most',
    );
  }
  if (LIKE_VERSION.test(alias)) return fault('must not look like a version: four or more hexadecimal digits');
  return null;
}

/** True for a text that can name a version or an alias in a reference to a function; '' names `live`. */
export function isReference(text: string): boolean {
  return text === '' || ALIAS_NAME.test(text) || LIKE_VERSION.test(text);
}

/** The fault of an alias's shares, or null. Does not check that their versions exist. */
export function sharesFault(shares: readonly Share[]): AliasFault | null {
  if (shares.length === 0) return { field: '/shares', message: 'must name at least one version' };
  if (shares.length > MAX_SHARES)
    return { field: '/shares', message: `must not name more than ${MAX_SHARES} versions` };
  for (const [index, { version, weight }] of shares.entries()) {
    const field = `/shares/${index}`;
    if (!Number.isInteger(weight) || weight < 1 || weight > PERCENT) {
      return { field: `${field}/weight`, message: `must be a whole number from 1 to ${PERCENT}` };
    }
    if (shares.findIndex((share) => share.version === version) !== index) {
      return { field: `${field}/version`, message: 'is named twice' };
    }
  }
  const sum = shares.reduce((total, { weight }) => total + weight, 0);
  return sum === PERCENT
    ? null
    : { field: '/shares', message: `must have weights that sum to ${PERCENT}; these sum to ${sum}` };
}

/** The fault of the message of a change, or null. */
export function messageFault(message: string | undefined, field = '/message'): AliasFault | null {
  if (message === undefined || message.length <= MAX_MESSAGE) return null;
  return { field, message: `must not be longer than ${MAX_MESSAGE} characters` };
}

/**
 * Chooses the version of one invocation.
 *
 * @param random uniform, from 0 up to but not including 1.
 * @example chooseVersion([{ version: 'a', weight: 90 }, { version: 'b', weight: 10 }], 0.95) // 'b'
 */
export function chooseVersion(shares: readonly Share[], random: number): string | undefined {
  let remainingWeight = random * shares.reduce((sum, { weight }) => sum + weight, 0);
  for (const { version, weight } of shares) {
    remainingWeight -= weight;
    if (remainingWeight < 0) return version;
  }
  return shares.at(-1)?.version;
}

/** The version with the largest share; of equal shares, the first. */
export function heaviest(shares: readonly Share[]): string | undefined {
  return [...shares].sort((a, b) => b.weight - a.weight)[0]?.version;
}

/**
 * The state that a rollback restores: the one before the present state, or null when none is known. States that earlier rollbacks undid are
 * skipped, so two rollbacks go two steps back instead of back and forth.
 *
 * @param history newest first, the present state first of all.
 */
export function stepBack(history: readonly AliasState[]): AliasState | null {
  const [present] = history;
  if (present === undefined) return null;
  const earlierState = history.find(({ revision }) => revision < (present.restores ?? present.revision));
  return earlierState === undefined ? null : original(earlierState, history);
}

/** The newest past state in which all invocations went to one version; null when none is known. */
export function lastOf(version: string, history: readonly AliasState[]): AliasState | null {
  const found = history.find(({ shares }) => shares.length === 1 && shares[0]?.version === version);
  return found === undefined ? null : original(found, history);
}

/** If `state` is a rollback, the state that it restored, else `state` itself. */
function original(state: AliasState, history: readonly AliasState[]): AliasState {
  return history.find(({ revision }) => revision === state.restores) ?? state;
}

/** Order of aliases' names: `live` first. */
export function compareAliasNames(a: string, b: string): number {
  if (a === LIVE) return b === LIVE ? 0 : -1;
  if (b === LIVE) return 1;
  return a < b ? -1 : 1;
}

/** True when two lists of shares divide invocations alike. */
export function sameShares(a: readonly Share[], b: readonly Share[]): boolean {
  return (
    a.length === b.length &&
    a.every(({ version, weight }) => b.some((other) => other.version === version && other.weight === weight))
  );
}

/** Pattern of a function's name, which appears in URLs, keys and commands. */
export const FUNCTION_NAME = /^[a-z][a-z0-9-]{0,62}$/;
