import { z } from 'zod';
import { type InvocationLimits, LATENCY_BOUNDS } from '../invocations/types.ts';
import {
  MAX_ENVIRONMENT_CHARACTERS,
  MAX_NAMED_SECRETS,
  MAX_VARIABLE_LENGTH,
  MAX_VARIABLES,
  SEALED_VALUE,
  VARIABLE_NAME,
} from '../secrets/rules.ts';
import { FUNCTION_NAME } from './aliases.ts';
import { grantsSchema } from './grants.ts';
import { checkInputSchema, type JsonSchema } from './schema/compiled.ts';

/** Bounds of the limits that a manifest may set: `[least, most]`. */
export const LIMIT_BOUNDS = {
  cpuMs: [1, 600_000],
  wallMs: [1, 3_600_000],
  memoryMb: [1, 1024],
  pages: [0, 1_000_000],
  tokens: [1, 10_000_000],
} as const satisfies Record<keyof Omit<InvocationLimits, 'contexts' | 'maxPriority'>, readonly [number, number]>;

/**
 * Limits of a function whose manifest sets none. QuickJS itself takes about 2 of the 64 MiB; `wallMs` is also the default
 * deadline of an invocation.
 */
export const DEFAULT_LIMITS: InvocationLimits = {
  cpuMs: 30_000,
  wallMs: 300_000,
  memoryMb: 64,
  pages: 4096,
  tokens: 100_000,
};

/** Highest and, negated, lowest priority that a function may give its queues. */
export const MAX_PRIORITY = 3;
/** Maximum ready instances that a function may request. */
const MAX_POOL = 256;
const MAX_DESCRIPTION = 1000;
const MAX_MODELS = 16;
/** Maximum bytes of a manifest as JSON text. */
export const MAX_MANIFEST_BYTES = 64 * 1024;
/** Maximum levels of lists and objects in a manifest, because the platform walks it recursively. 64 nested schemas take about 130. */
const MAX_MANIFEST_DEPTH = 256;

const MODEL_NAME = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$/;

const limit = (name: Exclude<keyof typeof LIMIT_BOUNDS, 'pages'>) => {
  const [least, most] = LIMIT_BOUNDS[name];
  const message = `must be a whole number from ${least} to ${most}`;
  return z.int(message).min(least, message).max(most, message).optional();
};

const target = (name: keyof typeof LATENCY_BOUNDS) => {
  const [least, most] = LATENCY_BOUNDS[name];
  const message = `must be a whole number of milliseconds from ${least} to ${most}`;
  return z.int(message).min(least, message).max(most, message);
};

const [LEAST_PAGES, MOST_PAGES] = LIMIT_BOUNDS.pages;
const pagesFault = `must be a whole number from ${LEAST_PAGES} to ${MOST_PAGES}, or "context"`;
const pagesLimit = z
  .union([z.int(pagesFault).min(LEAST_PAGES, pagesFault).max(MOST_PAGES, pagesFault), z.literal('context')], {
    error: pagesFault,
  })
  .optional();

const modelName = z
  .string('must be the name of a model, or a list of names')
  .regex(MODEL_NAME, 'is not a name of a model (letters, digits, ".", "_", "-" and "/", up to 128)');

const expectedPages = z
  .int('must be a whole number')
  .min(0, 'must not be below 0')
  .max(MOST_PAGES, `must not be above ${MOST_PAGES}`);

const variableName = z
  .string('must be a name')
  .regex(VARIABLE_NAME, 'must begin with a capital letter and hold capital letters, digits and "_", 64 at most');

const secretsSchema = z
  .array(variableName, 'must be a list of names')
  .max(MAX_NAMED_SECRETS, `must not name more than ${MAX_NAMED_SECRETS} secrets`)
  .refine((names) => new Set(names).size === names.length, 'must not name a secret twice');

const environmentSchema = z
  .record(
    variableName,
    z
      .string('must be a text')
      .max(MAX_VARIABLE_LENGTH, `must not be longer than ${MAX_VARIABLE_LENGTH} characters`)
      .refine((value) => value.isWellFormed(), 'must be well-formed text')
      .refine(
        (value) => value !== SEALED_VALUE,
        'is what the platform shows in place of a value: give the value itself',
      ),
    'must be an object of texts',
  )
  .refine((values) => Object.keys(values).length <= MAX_VARIABLES, `must not have more than ${MAX_VARIABLES} variables`)
  .refine(
    (values) => Object.values(values).reduce((sum, { length }) => sum + length, 0) <= MAX_ENVIRONMENT_CHARACTERS,
    `must not have more than ${MAX_ENVIRONMENT_CHARACTERS} characters`,
  );

export const manifestSchema = z
  .strictObject(
    {
      name: z
        .string({ error: ({ input }) => (input === undefined ? 'is missing' : 'must be a text') })
        .regex(
          FUNCTION_NAME,
          'must begin with a lower-case letter and hold lower-case letters, digits and "-", 63 at most',
        ),
      description: z
        .string('must be a text')
        .max(MAX_DESCRIPTION, `must not be longer than ${MAX_DESCRIPTION} characters`)
        .optional(),
      input: z
        .custom<JsonSchema>()
        .superRefine((schema, context) => {
          for (const { path, message } of checkInputSchema(schema)) {
            context.addIssue({ code: 'custom', path: [...path], message, input: schema });
          }
        })
        .optional(),
      model: z
        .union(
          [
            modelName,
            z
              .array(modelName)
              .min(1, 'must name at least one model')
              .max(MAX_MODELS, `must not name more than ${MAX_MODELS} models`),
          ],
          {
            error: 'must be the name of a model, or a list of names',
          },
        )
        .optional(),
      limits: z
        .strictObject(
          {
            cpuMs: limit('cpuMs'),
            wallMs: limit('wallMs'),
            memoryMb: limit('memoryMb'),
            pages: pagesLimit,
            tokens: limit('tokens'),
            priority: z
              .int(`must be a whole number from 0 to ${MAX_PRIORITY}`)
              .min(0, 'must not be below 0')
              .max(MAX_PRIORITY, `must not be above ${MAX_PRIORITY}`)
              .optional(),
          },
          'must be an object',
        )
        .optional(),
      pool: z
        .strictObject(
          {
            min: z
              .int(`must be a whole number from 0 to ${MAX_POOL}`)
              .min(0, 'must not be below 0')
              .max(MAX_POOL, `must not be above ${MAX_POOL}`)
              .optional(),
          },
          'must be an object',
        )
        .optional(),
      latency: z
        .union(
          [
            z.strictObject({ firstTokenMs: target('firstTokenMs'), perTokenMs: target('perTokenMs') }),
            z.literal(false),
          ],
          { error: 'must be an object with firstTokenMs and perTokenMs, or false' },
        )
        .optional(),
      expectedPages: z
        .union([expectedPages, z.record(modelName, expectedPages, 'must be an object of numbers by model')], {
          error: 'must be a number of pages, or an object of numbers by model',
        })
        .refine((pages) => typeof pages === 'number' || Object.keys(pages).length <= MAX_MODELS, {
          error: `must not name more than ${MAX_MODELS} models`,
        })
        .optional(),
      grants: grantsSchema.optional(),
      restartable: z.boolean('must be true or false').optional(),
      secrets: secretsSchema.optional(),
      environment: environmentSchema.optional(),
      main: z
        .string('must be a path')
        .max(256, 'must not be longer than 256 characters')
        .refine(
          (path) => !path.startsWith('/') && !path.split(/[\\/]/).includes('..') && path !== '',
          'must be a path inside the folder of the manifest',
        )
        .optional(),
    },
    'must be a JSON object',
  )
  .superRefine(({ secrets = [], environment = {} }, context) => {
    for (const name of secrets) {
      if (!Object.hasOwn(environment, name)) continue;
      context.addIssue({ code: 'custom', path: ['environment', name], message: 'is the name of a secret too' });
    }
  });

/** The declaration of a function by its author: `pie.json`. */
export type Manifest = z.infer<typeof manifestSchema>;

/** One fault of a manifest; `field` is a path such as `limits.cpuMs`, empty for the whole. */
export interface FieldError {
  readonly field: string;
  readonly message: string;
}

export type ManifestOutcome =
  | { readonly ok: true; readonly manifest: Manifest }
  | { readonly ok: false; readonly errors: readonly FieldError[] };

/**
 * Checks a manifest, field by field. Never throws.
 *
 * @example parseManifest({ name: 'story', limits: { cpuMs: -1 } }) // {ok: false, errors: [{field: 'limits.cpuMs', message: 'must be …'}]}
 */
export function parseManifest(value: unknown): ManifestOutcome {
  if (jsonBytes(value) > MAX_MANIFEST_BYTES) {
    return { ok: false, errors: [{ field: '', message: `must not be larger than ${MAX_MANIFEST_BYTES} bytes` }] };
  }
  if (isDeeperThan(MAX_MANIFEST_DEPTH, value)) {
    return {
      ok: false,
      errors: [{ field: '', message: `must not be nested deeper than ${MAX_MANIFEST_DEPTH} levels` }],
    };
  }
  const parsed = manifestSchema.safeParse(withoutSchema(value));
  if (parsed.success) return { ok: true, manifest: parsed.data };
  return { ok: false, errors: parsed.error.issues.flatMap(toFieldErrors) };
}

/** Removes `$schema`, which only editors use. */
function withoutSchema(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || !('$schema' in value)) return value;
  const { $schema: _, ...manifest } = value;
  return manifest;
}

/** Size as JSON text; infinite for a value without JSON text (a cycle, a bigint). */
function jsonBytes(value: unknown): number {
  try {
    return new TextEncoder().encode(JSON.stringify(value) ?? '').length;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

function isDeeperThan(maxDepth: number, value: unknown): boolean {
  let level = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > maxDepth) return true;
    level = level.flatMap((each) => (typeof each === 'object' && each !== null ? Object.values(each) : []));
  }
  return false;
}

function toFieldErrors(issue: z.core.$ZodIssue): FieldError[] {
  const field = issue.path.map(String).join('.');
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({
      field: field === '' ? key : `${field}.${key}`,
      message: 'is not a field of a manifest',
    }));
  }
  if (issue.code === 'invalid_key') return [{ field, message: issue.issues[0]?.message ?? issue.message }];
  if (issue.code === 'invalid_union') {
    // The alternative that matched furthest has the most useful message.
    const deepest = issue.errors.flat().sort((a, b) => b.path.length - a.path.length)[0];
    if (deepest && deepest.path.length > 0) {
      return [{ field: [...issue.path, ...deepest.path].map(String).join('.'), message: deepest.message }];
    }
  }
  return [{ field, message: issue.message }];
}

/**
 * The limits of an invocation: the manifest's, otherwise the platform's defaults. With pages that are "context", the limits have the default pages
 * and `contexts`: the number of pages depends on the models, which the runtime knows.
 *
 * @param input JSON text, which decides how many contexts a function with `limits.pages: "context"` may hold
 */
export function resolveLimits(
  manifest: Manifest,
  defaults: InvocationLimits = DEFAULT_LIMITS,
  input = '',
): InvocationLimits {
  const { priority, pages, ...requestedLimits } = manifest.limits ?? {};
  const pageLimits = pages === 'context' ? { contexts: contextsOf(input) } : pages === undefined ? {} : { pages };
  return { ...defaults, ...requestedLimits, ...pageLimits, maxPriority: priority ?? MAX_PRIORITY };
}

/**
 * Number of contexts of a model that an input asks for: its choices, `n`, of each of its prompts where `prompt` is a list of texts or of lists of
 * tokens. 1 for an input without these members. Reads the text without parsing it: the input may have 4 MiB of a stranger, a worker or a bounded
 * reader has parsed it already, and the thread serves other tenants. A name that is written with escapes does not count.
 */
function contextsOf(input: string): number {
  let choices = 1;
  let prompts = 1;
  const json = input.trimStart();
  if (!json.startsWith('{')) return 1;
  const isClosed = eachItem(json, (from) => {
    const name = json.startsWith('"n"', from) ? 'n' : json.startsWith('"prompt"', from) ? 'prompt' : null;
    if (name === null) return;
    const value = firstOf(json, json.indexOf(':', from) + 1);
    if (name === 'n') choices = choicesAt(json, value);
    else prompts = json[value] === '[' ? promptsIn(json.slice(value)) : 1;
  });
  return isClosed ? Math.min(choices * prompts, MOST_PAGES) : 1;
}

/** The number at an index of JSON text, if it is a whole number of at least 1; otherwise 1. */
function choicesAt(json: string, at: number): number {
  const [digits = ''] = /^-?\d[\d.eE+-]{0,30}/.exec(json.slice(at, at + 32)) ?? [];
  const number = Number(digits);
  return Number.isInteger(number) ? Math.max(1, number) : 1;
}

/** Number of prompts in a list of texts or of lists of tokens; 1 for a list of tokens. */
function promptsIn(list: string): number {
  let count = 0;
  let isOfTokens = false;
  eachItem(list, (from) => {
    if (count++ === 0) isOfTokens = /[-\d]/.test(list[from] ?? '');
  });
  return isOfTokens ? 1 : Math.max(1, count);
}

/**
 * Calls `visit` with the index at which each item or member begins in the list or object at the start of JSON text. Reads each character once.
 * @returns false when the list or object has no end
 */
function eachItem(json: string, visit: (from: number) => void): boolean {
  let depth = 1;
  const first = firstOf(json, 1);
  if (json[first] !== ']' && json[first] !== '}') visit(first);
  for (let at = first; at < json.length; at++) {
    switch (json[at]) {
      case '"':
        at = endOfString(json, at);
        break;
      case '[':
      case '{':
        depth++;
        break;
      case ']':
      case '}':
        if (--depth === 0) return true;
        break;
      case ',':
        if (depth === 1) visit(firstOf(json, at + 1));
    }
  }
  return false;
}

/** Index of the first character from `at` on that is no space. */
function firstOf(json: string, at: number): number {
  let first = at;
  while (json.charCodeAt(first) <= 0x20) first++;
  return first;
}

/** Index of the quotation mark that ends the string beginning at `at`; the length of the text when there is none. */
function endOfString(json: string, at: number): number {
  for (let end = json.indexOf('"', at + 1); end >= 0; end = json.indexOf('"', end + 1)) {
    let first = end;
    while (json[first - 1] === '\\') first--;
    if ((end - first) % 2 === 0) return end;
  }
  return json.length;
}

/** The models that a manifest names, in order; the first is the function's default. */
export function manifestModels(manifest: Manifest): readonly string[] {
  if (manifest.model === undefined) return [];
  return typeof manifest.model === 'string' ? [manifest.model] : manifest.model;
}
