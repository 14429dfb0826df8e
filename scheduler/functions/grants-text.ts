import { resolveGrants } from './grants.ts';
import { type Manifest, manifestModels } from './manifest.ts';

/** A function's grants in words. The person who deploys the function agrees to them. */
export function grantsInWords(manifest: Manifest): string[] {
  const { hosts, imageHosts, store, messaging, launch } = resolveGrants(manifest.grants);
  const models = manifestModels(manifest);
  const words = [`uses ${models.length === 0 ? 'every model of the platform' : list('the model', models)}`];
  if (hosts.length > 0) words.push(`sends requests to ${hosts.join(', ')}`);
  if (imageHosts) words.push("loads images from the hosts that the platform's operator allows");
  if (store !== 'none')
    words.push(store === 'read' ? "reads the tenant's store" : "reads and writes the tenant's store");
  if (messaging) words.push("exchanges messages with the tenant's inferlets");
  if (launch === '*') words.push("launches any of the tenant's functions");
  else if (launch.length > 0) words.push(`launches ${list('the function', launch)}`);
  const { secrets = [], environment = {} } = manifest;
  const variables = Object.keys(environment);
  if (secrets.length > 0) words.push(`reads ${list('the secret', secrets)}`);
  if (variables.length > 0) words.push(`is given ${list('the variable', variables)}`);
  return words;
}

function list(what: string, names: readonly string[]): string {
  return `${what}${names.length === 1 ? '' : 's'} ${names.join(', ')}`;
}
