import type { WitFunction, WitInterface, WitWorld } from '#wit/generate/model.ts';

/**
 * Describes each change that breaks a component built for an older contract; returns an empty list if there is none. Every interface, function,
 * resource and type of the old contract must exist with the same structure: to an existing component, a variant with one more case is a different
 * type. The exports must be the same, since existing components lack a new export.
 */
export function missingFrom(current: WitWorld, old: WitWorld): string[] {
  const missing: string[] = [];
  if (current.package !== old.package) missing.push(`the package is ${current.package}, not ${old.package}`);
  for (const before of old.imports) {
    const now = current.imports.find(({ name }) => name === before.name);
    if (now) missing.push(...missingFromInterface(now, before));
    else missing.push(`${before.name} is gone`);
  }
  for (const before of old.exports) {
    const now = current.exports.find(({ name }) => name === before.name);
    if (!now || shape(now) !== shape(before))
      missing.push(`the export ${before.name} is gone or has another signature`);
  }
  for (const now of current.exports) {
    if (!old.exports.some(({ name }) => name === now.name))
      missing.push(`the export ${now.name} is new, and existing components lack it`);
  }
  return missing;
}

function missingFromInterface(now: WitInterface, before: WitInterface): string[] {
  const missing: string[] = [];
  for (const type of before.types) {
    const same = now.types.find(({ name }) => name === type.name);
    if (!same) missing.push(`${before.name}.${type.name} is gone`);
    else if (shape(same) !== shape(type)) missing.push(`the type ${before.name}.${type.name} has changed`);
  }
  for (const { name } of before.resources) {
    if (!now.resources.some((resource) => resource.name === name)) missing.push(`${before.name}.${name} is gone`);
  }
  const functions = allFunctions(now);
  for (const fn of allFunctions(before)) {
    const same = functions.find(({ coreName }) => coreName === fn.coreName);
    if (!same) missing.push(`${before.name} ${fn.coreName} is gone`);
    else if (shape(same) !== shape(fn)) missing.push(`${before.name} ${fn.coreName} has another signature`);
  }
  return missing;
}

const allFunctions = (entry: WitInterface): WitFunction[] => [
  ...entry.functions,
  ...entry.resources.flatMap(({ functions }) => functions),
];

/** A type or function as JSON, as far as a component sees it: without its documentation. */
const shape = (value: unknown): string =>
  JSON.stringify(value, (key, inner: unknown) => (key === 'docs' ? undefined : inner));
