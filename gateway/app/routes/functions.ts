import { createRoute, z } from '@hono/zod-openapi';
import { type AppSettings, callOf } from '../context.ts';
import type { Call, ControlPlane, FunctionManifest, FunctionVersion } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { readMultipart } from '../http/multipart.ts';
import { checkComponent } from '../validation/component.ts';
import { type App, define, json, problems, SECURITY } from './define.ts';
import { DeployedSchema, FunctionSchema } from './schemas.ts';

const nameParam = z.object({
  name: z.string().min(1).max(64).openapi({ description: 'Name of the function', example: 'text-completion' }),
});

export const referenceParam = z.object({
  reference: z
    .string()
    .min(1)
    .max(160)
    .openapi({ description: 'Name of the function; `name@version` for one version', example: 'text-completion' }),
});

/** Deploy, list, inspect, remove. */
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
        'Builds the component and stores it as a new immutable version, which becomes the current one. Identical content is the same version. Nothing is stored unless everything is valid.',
      security: SECURITY,
      request: {
        params: nameParam,
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
                    description: 'The Wasm component',
                  },
                },
              },
            },
          },
        },
      },
      responses: {
        201: json(DeployedSchema, 'A new version'),
        200: json(DeployedSchema, 'This content was deployed before'),
        ...problems(
          'malformed-request',
          'malformed-json',
          'body-too-large',
          'component-too-large',
          'unsupported-media-type',
          'invalid-manifest',
          'not-wasm',
          'core-module',
          'wrong-world',
          'build-failed',
          'build-timeout',
          'runtime-unavailable',
        ),
      },
    }),
    async (c) => {
      const call = callOf(c, 'deploy');
      const { name } = c.req.valid('param');
      const { manifest, component } = await readDeployment(c.req.raw, settings);
      if (manifest.name !== name) {
        throw new GatewayError(
          'invalid-manifest',
          `The manifest is for "${manifest.name}", the address for "${name}".`,
          { field: '/name' },
        );
      }
      checkComponent(component);
      const deployed = await control.deploy(call, { name, manifest, component });
      const location = `/v1/functions/${name}@${deployed.function.version}`;
      return c.json({ ...deployed.function, created: deployed.created }, deployed.created ? 201 : 200, { location });
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
        'The current version of each function that the tenant may invoke, by name: its own, and those of the platform, which are marked.',
      security: SECURITY,
      responses: { 200: json(z.object({ functions: z.array(FunctionSchema) }), 'The functions'), ...problems() },
    }),
    async (c) => c.json({ functions: await control.functions(callOf(c)) }),
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/functions/{reference}',
      operationId: 'getFunction',
      tags: ['Functions'],
      summary: 'Inspect a function',
      security: SECURITY,
      request: { params: referenceParam },
      responses: { 200: json(FunctionSchema, 'The function'), ...problems('unknown-function') },
    }),
    async (c) => c.json(await findFunction(control, callOf(c), c.req.valid('param').reference)),
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/functions/{name}/versions',
      operationId: 'listVersions',
      tags: ['Functions'],
      summary: 'List the versions of a function',
      description: 'Newest first; those of the platform, which are marked, after the tenant’s own.',
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
      return c.json({ versions });
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
      description: 'Removes all its versions. Invocations that run go on.',
      security: SECURITY,
      request: { params: nameParam },
      responses: { 204: { description: 'Removed' }, ...problems('unknown-function') },
    }),
    async (c) => {
      const { name } = c.req.valid('param');
      if (!(await control.removeFunction(callOf(c, 'deploy'), name))) throw unknownFunction(name);
      return c.body(null, 204);
    },
  );
}

/** The version that `name` or `name@version` means. Throws `unknown-function`. */
export async function findFunction(control: ControlPlane, call: Call, reference: string): Promise<FunctionVersion> {
  const at = reference.indexOf('@');
  const name = at < 0 ? reference : reference.slice(0, at);
  const version = at < 0 ? undefined : reference.slice(at + 1);
  const found = name === '' || version === '' ? null : await control.function(call, { name, version });
  if (found === null) throw unknownFunction(reference);
  return found;
}

export function unknownFunction(reference: string): GatewayError {
  return new GatewayError('unknown-function', `There is no function "${reference}".`);
}

async function readDeployment(
  request: Request,
  settings: AppSettings,
): Promise<{ manifest: FunctionManifest; component: Uint8Array }> {
  const { manifestBytes, componentBytes } = settings.limits;
  const parts = await readMultipart(request, {
    limits: { manifest: manifestBytes, component: componentBytes },
    tooLarge: (name, limit) =>
      name === 'component'
        ? new GatewayError('component-too-large', `The component is larger than ${limit} bytes.`)
        : new GatewayError('body-too-large', `The part "${name}" is larger than ${limit} bytes.`),
  });
  const manifest = parts.get('manifest');
  const component = parts.get('component');
  if (manifest === undefined || component === undefined) {
    throw new GatewayError(
      'malformed-request',
      `The part "${manifest === undefined ? 'manifest' : 'component'}" is missing.`,
    );
  }
  return { manifest: parseManifestText(manifest.bytes), component: component.bytes };
}

function parseManifestText(bytes: Uint8Array): FunctionManifest {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (cause) {
    throw new GatewayError(
      'malformed-json',
      `The manifest is not JSON: ${cause instanceof Error ? cause.message : 'it does not parse'}.`,
    );
  }
  if (typeof value !== 'object' || value === null || !('name' in value) || typeof value.name !== 'string') {
    throw new GatewayError('invalid-manifest', 'The manifest is not an object with a `name`.', { field: '/name' });
  }
  return value as FunctionManifest;
}
