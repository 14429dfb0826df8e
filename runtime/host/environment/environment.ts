import type { Inferlet } from '../inferlet.ts';

/** Implements `wit/environment.wit`. */
export const environment = {
  'get-variable': (inferlet: Inferlet, name: string): string | undefined => inferlet.description.variables?.get(name),
  'list-variables': (inferlet: Inferlet): readonly string[] => [...(inferlet.description.variables?.keys() ?? [])],
};
