/**
 * Names that JavaScript objects give a meaning of their own. A guest chooses the names of its core modules' imports and exports, and tools
 * (jco's glue among them) use such names as keys of objects: a component that uses one of these is refused.
 */
const RESERVED: ReadonlySet<string> = new Set(['__proto__', 'constructor', 'prototype']);

/** What the build adds to the exports of core modules, for the host. */
export const PIE_EXPORTS = {
  fuel: 'pie_fuel',
  yield: 'pie_yield',
  start: 'pie_start',
  /** There when the host can put an instance back to how it was made. */
  restorable: 'pie_restorable',
} as const;

const STATE = 'pie_state_';

/** What an instance changes while it runs, by number. */
export const stateName = (number: number): string => `${STATE}${number}`;

const ADDED: ReadonlySet<string> = new Set(Object.values(PIE_EXPORTS));

/** Whether the build exports something of that name. */
export const isAddedName = (name: string): boolean => ADDED.has(name) || name.startsWith(STATE);

/** Whether a guest may not use `name` for a module, an import or an export. */
export const isReservedName = (name: string): boolean => RESERVED.has(name);

/** Says why a name is refused. */
export const reservedNameMessage = (name: string): string =>
  `a core module imports or exports the name \`${name}\`, which JavaScript reserves; give it another name`;
