/** Prints the JSON schema of `pie.json`, for editors: `node scheduler/functions/manifest-schema.ts`. */
import { z } from 'zod';
import { type Manifest, manifestSchema } from './manifest.ts';

const DESCRIPTIONS: Readonly<Record<keyof Manifest, string>> = {
  name: 'Stands in addresses and commands',
  description: 'What it does, for people',
  input:
    'JSON schema of the input; an input that does not fit is refused, with the field. Without one every input is let through',
  model: 'The models that it may use, the first by default; all of the platform without it',
  limits: 'Most that one invocation may use: CPU time and wall time in ms, memory in MiB, KV pages, generated tokens',
  pool: 'Ready instances that are kept',
  grants: 'What it may do besides computing: hosts, the store, messaging, functions to launch',
  restartable: 'Whether an invocation whose runtime died is begun again from the start',
  main: 'Entry file: a source (.ts, .js) or a component (.wasm); index.ts without it',
};

const { $schema: dialect, ...schema } = z.toJSONSchema(manifestSchema, { unrepresentable: 'any', io: 'input' });
const described = Object.entries(schema.properties ?? {}).map(([name, property]) => {
  const members = { ...(property as object), ...(name === 'input' ? { type: 'object' } : {}) };
  return [name, { description: DESCRIPTIONS[name as keyof Manifest], ...members }];
});
const properties = { $schema: { type: 'string' }, ...Object.fromEntries(described) };
console.log(JSON.stringify({ $schema: dialect, title: 'pie.json', ...schema, properties }, null, 2));
