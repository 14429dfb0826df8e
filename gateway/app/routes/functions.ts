import { createRoute, z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { NO_ALIAS } from '#scheduler/functions/aliases.ts';
import { type AppEnv, type AppSettings, callOf } from '../context.ts';
import type {
  Call,
  ControlPlane,
  Draining,
  FunctionManifest,
  FunctionReference,
  FunctionVersion,
  Invoked,
  InvokeRequest,
} from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { jsonAnswer } from '../http/answer.ts';
import { type Body, parseJson } from '../http/bodies.ts';
import { malformedDeployment, readMultipart } from '../http/multipart.ts';
import { DeployedSchema, DeployPlanSchema, DrainingSchema, FunctionSchema } from '../schemas/functions.ts';
import { checkComponent } from '../validation/component.ts';
import { type App, define, json, problems, SECURITY } from './define.ts';

export const nameParam = z.object({
  name: z.string().min(1).max(64).openapi({ description: 'Name of the function', example: 'text-completion' }),
});

/** Maximum characters of a query parameter. The control plane applies the smaller limit of each one. */
const MAX_QUERY = 1000;
const flag = z.enum(['true', 'false']).optional();

const deployQuery = z.object({
  alias: z
    .string()
    .max(MAX_QUERY)
    .optional()
    .openapi({
      description: `Alias to point at the version: \`live\` by default; \`${NO_ALIAS}\` changes no alias`,
    }),
  tag: z.string().max(MAX_QUERY).optional().openapi({
    description: 'Tag of the version, such as `v1.2`; refused with `conflict` if another version has it',
  }),
  message: z
    .string()
    .max(MAX_QUERY)
    .optional()
    .openapi({ description: 'Description of the change, at most 500 characters' }),
  only_new: flag.openapi({ description: 'Change no alias if this content was deployed before' }),
  dry_run: flag.openapi({ description: 'Check, and return what would change; store nothing' }),
});

export const removeQuery = z.object({
  now: flag.openapi({ description: 'Cancel the invocations that wait or run instead of letting them end' }),
});

export const REMOVED = {
  202: json(
    z.object({ draining: z.array(DrainingSchema) }),
    'Removed; these versions are deleted when their invocations have ended',
  ),
  204: { description: 'Removed completely' },
};

export const referenceParam = z.object({
  reference: z.string().min(1).max(160).openapi({
    description: 'Name of the function, or `name@alias` or `name@version`',
    example: 'text-completion',
  }),
});

export function functionRoutes(app: App, control: ControlPlane, settings: AppSettings): void {
  define(
    app,
    createRoute({
      method: 'put',
      path: '/v1/functions/{name}',
      operationId: 'deployFunction',
      tags: ['Functions'],
      summary: 'Deploy a function',
      description:
        'Builds the component, or evaluates the script, and stores it as a new immutable version, which the alias `live` then serves. Identical content gives the same version. Nothing is stored unless everything is valid.',
      security: SECURITY,
      request: {
        params: nameParam,
        query: deployQuery,
        body: {
          required: true,
          content: {
            'multipart/form-data': {
              schema: {
                type: 'object',
                required: ['manifest', 'component'],
                properties: {
                  manifest: { type: 'string', contentMediaType: 'application/json', description: 'pie.json' },
                  component: {
                    type: 'string',
                    contentMediaType: 'application/wasm',
                    description: 'The Wasm component, or the script that `pie build` writes for TypeScript',
                  },
                },
              },
            },
          },
        },
      },
      responses: {
        201: json(DeployedSchema, 'A new version'),
        200: json(
          z.union([DeployedSchema, DeployPlanSchema]),
          'This content was deployed before; with `dry_run`, what a deployment would do',
        ),
        ...problems(
          'malformed-request',
          'malformed-json',
          'body-too-large',
          'component-too-large',
          'unsupported-media-type',
          'invalid-manifest',
          'invalid-input',
          'invalid-alias',
          'unknown-secret',
          'conflict',
          'not-wasm',
          'core-module',
          'wrong-world',
          'unsupported-component',
          'build-failed',
          'build-timeout',
          'quota-storage',
          'runtime-unavailable',
          'too-many-requests',
        ),
      },
    }),
    async (c) => {
      const call = callOf(c, 'deploy');
      const { name } = c.req.valid('param');
      const { manifest, component } = await readDeployment(c.get('body'), settings);
      if (manifest.name !== name) {
        throw new GatewayError(
          'invalid-manifest',
          `The manifest is for "${manifest.name}", the address for "${name}".`,
          { field: '/name', hint: `Correct \`name\` in pie.json, or deploy to \`/v1/functions/${manifest.name}\`.` },
        );
      }
      checkComponent(component);
      const { alias, tag, message, only_new: onlyNew, dry_run: dryRun } = c.req.valid('query');
      const target = {
        ...(alias === undefined ? {} : { alias: alias === NO_ALIAS ? null : alias }),
        ...(tag === undefined ? {} : { tag }),
        ...(message === undefined ? {} : { message }),
        onlyNew: onlyNew === 'true',
      };
      if (dryRun === 'true') return jsonAnswer(c, await control.releases.plan(call, manifest, component, target));
      const deployed = await control.deploy(call, { name, manifest, component, target });
      const location = `/v1/functions/${name}@${deployed.version}`;
      return jsonAnswer(c, deployed, deployed.created ? 201 : 200, { location });
    },
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/functions',
      operationId: 'listFunctions',
      tags: ['Functions'],
      summary: 'List functions',
      description:
        'Each function that the tenant may invoke, sorted by name: its own, and those of the platform, which are marked. Each comes with the version that its name without an alias runs; if there are several, with the one that has the largest share.',
      security: SECURITY,
      responses: { 200: json(z.object({ functions: z.array(FunctionSchema) }), 'The functions'), ...problems() },
    }),
    async (c) => jsonAnswer(c, { functions: await control.functions(callOf(c)) }),
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/functions/{reference}',
      operationId: 'getFunction',
      tags: ['Functions'],
      summary: 'Inspect a function',
      description:
        'The version that the reference names. For an alias of several versions: the one with the largest share, or with `draw`, one that is chosen at random as for an invocation.',
      security: SECURITY,
      request: {
        params: referenceParam,
        query: z.object({
          draw: z
            .enum(['true', 'false'])
            .optional()
            .openapi({ description: 'Choose at random by the weights of the alias' }),
        }),
      },
      responses: { 200: json(FunctionSchema, 'The function'), ...problems('unknown-function', 'unknown-alias') },
    }),
    async (c) => {
      const { reference } = c.req.valid('param');
      const find = c.req.valid('query').draw === 'true' ? drawFunction : inspectFunction;
      return jsonAnswer(c, await find(control, callOf(c), reference));
    },
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/functions/{name}/versions',
      operationId: 'listVersions',
      tags: ['Functions'],
      summary: 'List the versions of a function',
      description: 'Newest first. The platform’s versions, which are marked, follow the tenant’s own.',
      security: SECURITY,
      request: { params: nameParam },
      responses: {
        200: json(z.object({ versions: z.array(FunctionSchema) }), 'The versions'),
        ...problems('unknown-function'),
      },
    }),
    async (c) => {
      const { name } = c.req.valid('param');
      const versions = await control.versions(callOf(c), name);
      if (versions.length === 0) throw unknownFunction(name);
      return jsonAnswer(c, { versions });
    },
  );

  define(
    app,
    createRoute({
      method: 'delete',
      path: '/v1/functions/{name}',
      operationId: 'removeFunction',
      tags: ['Functions'],
      summary: 'Remove a function',
      description:
        'No new invocation runs the function, and its name becomes free. Its versions are deleted when their invocations have ended; `now` cancels these.',
      security: SECURITY,
      request: { params: nameParam, query: removeQuery },
      responses: { ...REMOVED, ...problems('unknown-function') },
    }),
    async (c) => {
      const { name } = c.req.valid('param');
      const draining = await control.removeFunction(callOf(c, 'deploy'), name, c.req.valid('query').now === 'true');
      if (draining === null) throw unknownFunction(name);
      return removalAnswer(c, draining);
    },
  );
}

/** Invokes `name`, `name@alias` or `name@version`. Throws `unknown-function`, `unknown-alias`. */
export async function invokeFunction(
  control: ControlPlane,
  call: Call,
  reference: string,
  request: Omit<InvokeRequest, 'function'>,
): Promise<Invoked> {
  const { name, version } = referenceOf(reference);
  const invoked =
    name === '' || version === '' ? null : await control.invoke(call, { ...request, function: { name, version } });
  return invoked ?? throwMissing(control, call, name, version);
}

/** The version that an invocation of `name`, `name@alias` or `name@version` would run. Throws `unknown-function`, `unknown-alias`. */
async function drawFunction(control: ControlPlane, call: Call, reference: string): Promise<FunctionVersion> {
  const { name, version } = referenceOf(reference);
  const found = name === '' || version === '' ? null : await control.releases.resolve(call, name, version);
  return found ?? throwMissing(control, call, name, version);
}

/** Finds the version for display: for an alias, the version with the largest share. */
async function inspectFunction(control: ControlPlane, call: Call, reference: string): Promise<FunctionVersion> {
  const { name, version } = referenceOf(reference);
  const found = name === '' || version === '' ? null : await control.function(call, { name, version });
  return found ?? throwMissing(control, call, name, version);
}

/** Throws the error for an unknown reference, which tells a missing function from a missing version or alias. */
export async function throwMissing(
  control: ControlPlane,
  call: Call,
  name: string,
  version: string | undefined,
): Promise<never> {
  if (name === '' || (await control.versions(call, name)).length === 0) throw unknownFunction(name);
  if (version === undefined)
    throw new GatewayError(
      'unknown-alias',
      `The alias "live" of ${name} serves no version, so the name alone refers to none.`,
      {
        hint: `Name a version or another alias, such as ${name}@canary: \`pie versions ${name}\` lists them. \`pie alias set ${name} live VERSION\` sets it.`,
      },
    );
  throw new GatewayError('unknown-alias', `${name} has no alias or version "${version}".`, {
    hint: `\`pie versions ${name}\` lists its versions and the names that serve them.`,
  });
}

/** The parts of `name`, `name@alias` or `name@version`. */
export function referenceOf(reference: string): FunctionReference {
  const at = reference.indexOf('@');
  return at < 0 ? { name: reference } : { name: reference.slice(0, at), version: reference.slice(at + 1) };
}

/** The answer to a removal: 204 when nothing remains, 202 with the versions that still drain. */
export function removalAnswer(c: Context<AppEnv>, draining: readonly Draining[]): Response {
  return draining.length === 0 ? c.body(null, 204) : jsonAnswer(c, { draining }, 202);
}

export function unknownFunction(reference: string): GatewayError {
  return new GatewayError('unknown-function', `There is no function "${reference}".`);
}

async function readDeployment(
  body: Body,
  settings: AppSettings,
): Promise<{ manifest: FunctionManifest; component: Uint8Array }> {
  const { manifestBytes, componentBytes } = settings.limits;
  const parts = await readMultipart(body, {
    limits: { manifest: manifestBytes, component: componentBytes },
    tooLarge: (name, limit) =>
      name === 'component'
        ? new GatewayError('component-too-large', `The component is larger than ${limit} bytes.`)
        : new GatewayError('body-too-large', `The part "${name}" is larger than ${limit} bytes.`),
  });
  const manifest = parts.get('manifest');
  const component = parts.get('component');
  if (manifest === undefined || component === undefined) {
    const missing = manifest === undefined ? 'manifest' : 'component';
    throw malformedDeployment(`The part "${missing}" of the multipart body is missing.`);
  }
  return { manifest: parseManifestText(manifest), component };
}

function parseManifestText(bytes: Uint8Array): FunctionManifest {
  const { value } = parseJson(bytes, 'The manifest');
  if (typeof value !== 'object' || value === null || !('name' in value) || typeof value.name !== 'string') {
    throw new GatewayError('invalid-manifest', 'The manifest is not an object with a `name`.', { field: '/name' });
  }
  return value as FunctionManifest;
}
