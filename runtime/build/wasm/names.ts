/**
 * Names with a special meaning in JavaScript objects. A guest chooses the names of its core modules' imports and exports, and tools (such
 * as jco's glue) use these names as object keys, so a component that uses a reserved name is refused.
 */
const RESERVED: ReadonlySet<string> = new Set(['__proto__', 'constructor', 'prototype']);

/** Exports that the build adds to core modules, for the host. */
export const PIE_EXPORTS = {
  fuel: 'pie_fuel',
  yield: 'pie_yield',
  start: 'pie_start',
  /** Present when the host can restore an instance to its initial state. */
  restorable: 'pie_restorable',
} as const;

const STATE = 'pie_state_';

/** Name of the export with this number among the memories and globals that an instance changes while it runs. */
export const stateName = (number: number): string => `${STATE}${number}`;

const ADDED: ReadonlySet<string> = new Set(Object.values(PIE_EXPORTS));

/** True for the name of an export that the build adds. */
export const isAddedName = (name: string): boolean => ADDED.has(name) || name.startsWith(STATE);

/** True for a name that a guest may not use for a module, an import or an export. */
export const isReservedName = (name: string): boolean => RESERVED.has(name);

/** The message that refuses a name. */
export const reservedNameMessage = (name: string): string =>
  `a core module imports or exports the name \`${name}\`, which JavaScript reserves; give it another name`;
