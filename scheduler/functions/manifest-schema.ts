import { z } from 'zod';
import { manifestSchema } from './manifest.ts';

/** Description of each field, by its path. A test fails for a field without a description. */
const DESCRIPTIONS: Readonly<Record<string, string>> = {
  $schema: 'Address of this schema, for editors; the platform does not read it',
  name: 'Name of the function, in addresses and commands',
  description: 'Purpose of the function, for people',
  input:
    'JSON Schema of the input; an input that does not match is refused with the field at fault. Without a schema, every input is accepted',
  model: 'Models that the function may use; the first is its default. Without this field: all models of the platform',
  limits: 'Upper bounds on what one invocation may use',
  'limits.cpuMs': 'CPU time of its own code, milliseconds; waiting for the model does not count',
  'limits.wallMs': 'Time from its start to its end, milliseconds; time while it is preempted does not count',
  'limits.memoryMb': 'Memory of its instance, MiB',
  'limits.pages':
    'KV pages of each model that it may hold at once, its children included. "context": enough for a whole context of its largest model, for each choice (`n`) and each `prompt` that the input asks for, and at least the default',
  'limits.tokens': 'Tokens that it may embed and sample, its children included',
  'limits.priority': 'Highest and, negated, lowest priority that its queues may have',
  latency:
    "Latency targets, within the tenant's quota latency-invocations: a call on the GPU that would miss its target goes before calls that can wait or have no target. Without this field: the tenant's targets. false: no targets",
  'latency.firstTokenMs': 'Time from the arrival of a prompt on the GPU host to its first token, milliseconds',
  'latency.perTokenMs': 'Time of each later token, milliseconds',
  expectedPages:
    'KV pages that an invocation is expected to hold, on its default model or by model: it starts when so many are free. Without this field: learned from past runs',
  pool: 'Instances that runtimes keep ready',
  'pool.min': 'Ready instances that each runtime keeps of every version that an alias serves',
  grants: 'Rights besides computing and communicating with the client',
  'grants.hosts':
    'Hosts that it may send requests to: api.example.com, *.example.com, localhost:8080 (:* for any port)',
  'grants.imageHosts': 'GET requests by https to the hosts of images that the operator allows ([http] image_hosts)',
  'grants.store': 'The tenant\'s key-value store and vector indexes: true to read and write, "read" to read',
  'grants.messaging': "Broadcasts and message queues among the tenant's inferlets",
  'grants.launch': 'Functions that it may launch as children; "*" for all of the tenant',
  restartable:
    'true: an invocation that lost its runtime or its memory starts again from the beginning; only for functions that may run twice',
  secrets: 'Secrets of the tenant that it may read, by name; each deploy takes the values that they have then',
  environment:
    'Variables that it may read, text by name. Sealed where they are stored, never shown again, and taken out of logs from 4 characters on',
  main: 'Entry file: a source (.ts, .js, .c, .rs) or a component (.wasm); index.ts by default',
};

/** Id of the schema, independent of the address it was read from. */
const MANIFEST_SCHEMA_ID = 'urn:pie:pie.schema.json';

interface Described {
  readonly properties?: Readonly<Record<string, object>>;
  readonly anyOf?: readonly object[];
}

/**
 * The JSON schema of `pie.json`, for editors. The gateway serves it at `/pie.schema.json`, and the package holds it as
 * `pie/pie.schema.json`. Either address may be the manifest's `$schema`.
 */
export function manifestJsonSchema(): Record<string, unknown> {
  const { $schema: dialect, ...schema } = z.toJSONSchema(manifestSchema, { unrepresentable: 'any', io: 'input' });
  const { properties = {}, ...rest } = described(schema, '') as Described;
  return {
    $schema: dialect,
    $id: MANIFEST_SCHEMA_ID,
    title: 'pie.json',
    ...rest,
    properties: { $schema: { description: DESCRIPTIONS.$schema, type: 'string' }, ...properties },
  };
}

function described(schema: object, path: string): object {
  const description = path === '' ? undefined : DESCRIPTIONS[path];
  return {
    ...(description === undefined ? {} : { description }),
    ...(path === 'input' ? { type: 'object' } : {}),
    ...withFieldsDescribed(schema, path),
  };
}

function withFieldsDescribed(schema: object, path: string): object {
  const { properties, anyOf } = schema as Described;
  return {
    ...schema,
    ...(properties && {
      properties: Object.fromEntries(
        Object.entries(properties).map(([name, inner]) => [
          name,
          described(inner, path === '' ? name : `${path}.${name}`),
        ]),
      ),
    }),
    ...(anyOf && { anyOf: anyOf.map((each) => withFieldsDescribed(each, path)) }),
  };
}

// Run as a program, this module prints the schema.
if (import.meta.main) console.log(JSON.stringify(manifestJsonSchema(), null, 2));
