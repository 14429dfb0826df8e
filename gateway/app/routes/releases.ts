import { createRoute, z } from '@hono/zod-openapi';
import { callOf } from '../context.ts';
import type { ControlPlane } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { jsonAnswer } from '../http/answer.ts';
import { jsonBody, readChecked } from '../http/bodies.ts';
import {
  AliasSchema,
  DrainingSchema,
  MAX_TEXT,
  RollbackRequestSchema,
  RollbackSchema,
  SetAliasSchema,
} from '../schemas/functions.ts';
import { type App, BODY_CODES, define, json, problems, SECURITY } from './define.ts';
import { nameParam, REMOVED, removalAnswer, removeQuery, throwMissing, unknownFunction } from './functions.ts';

const aliasParam = nameParam.extend({
  alias: z.string().min(1).max(MAX_TEXT).openapi({ description: 'Name of the alias or tag', example: 'live' }),
});
const versionParam = nameParam.extend({
  version: z.string().min(1).max(MAX_TEXT).openapi({
    description: 'The version, its first four or more digits, or a tag of it',
    example: '3f9ac41e07b2',
  }),
});

/** Aliases, rollback, and the removal of single versions. */
export function releaseRoutes(app: App, control: ControlPlane): void {
  const { releases } = control;

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/functions/{name}/aliases',
      operationId: 'listAliases',
      tags: ['Releases'],
      summary: 'List the aliases and tags of a function',
      description: 'Sorted by name, `live` first, with the versions of each and their shares.',
      security: SECURITY,
      request: { params: nameParam },
      responses: {
        200: json(z.object({ aliases: z.array(AliasSchema) }), 'The aliases'),
        ...problems('unknown-function'),
      },
    }),
    async (c) => {
      const call = callOf(c);
      const { name } = c.req.valid('param');
      const aliases = await releases.aliases(call, name);
      if (aliases.length === 0 && (await control.versions(call, name)).length === 0) throw unknownFunction(name);
      return jsonAnswer(c, { aliases });
    },
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/functions/{name}/aliases/{alias}',
      operationId: 'getAlias',
      tags: ['Releases'],
      summary: 'Inspect an alias',
      security: SECURITY,
      request: { params: aliasParam },
      responses: { 200: json(AliasSchema, 'The alias'), ...problems('unknown-alias') },
    }),
    async (c) => {
      const { name, alias } = c.req.valid('param');
      const found = (await releases.aliases(callOf(c), name)).find((candidate) => candidate.alias === alias);
      if (found === undefined) throw unknownAlias(name, alias);
      return jsonAnswer(c, found);
    },
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/functions/{name}/aliases/{alias}/history',
      operationId: 'getAliasHistory',
      tags: ['Releases'],
      summary: 'Read the history of an alias',
      description: 'Newest first, including the present state. The platform keeps the last hundred states.',
      security: SECURITY,
      request: { params: aliasParam },
      responses: { 200: json(z.object({ history: z.array(AliasSchema) }), 'The states'), ...problems('unknown-alias') },
    }),
    async (c) => {
      const { name, alias } = c.req.valid('param');
      const history = await releases.history(callOf(c), name, alias);
      if (history.length === 0) throw unknownAlias(name, alias);
      return jsonAnswer(c, { history });
    },
  );

  define(
    app,
    createRoute({
      method: 'put',
      path: '/v1/functions/{name}/aliases/{alias}',
      operationId: 'setAlias',
      tags: ['Releases'],
      summary: 'Point an alias at versions',
      description:
        'In one step: every later invocation runs one of the versions, by weight; existing invocations keep their version.',
      security: SECURITY,
      request: { params: aliasParam, body: jsonBody(SetAliasSchema) },
      responses: {
        200: json(AliasSchema, 'The alias as it is now'),
        ...problems('unknown-function', 'invalid-alias', 'conflict', ...BODY_CODES),
      },
    }),
    async (c) => {
      const call = callOf(c, 'deploy');
      const { name, alias } = c.req.valid('param');
      return jsonAnswer(
        c,
        await releases.setAlias(call, name, alias, await readChecked(c.get('body'), SetAliasSchema)),
      );
    },
  );

  define(
    app,
    createRoute({
      method: 'delete',
      path: '/v1/functions/{name}/aliases/{alias}',
      operationId: 'removeAlias',
      tags: ['Releases'],
      summary: 'Remove an alias or a tag',
      description: 'Also removes the history of the alias. Its versions stay.',
      security: SECURITY,
      request: { params: aliasParam },
      responses: { 204: { description: 'Removed' }, ...problems('unknown-alias', 'conflict') },
    }),
    async (c) => {
      const call = callOf(c, 'deploy');
      const { name, alias } = c.req.valid('param');
      if (!(await releases.removeAlias(call, name, alias))) throw unknownAlias(name, alias);
      return c.body(null, 204);
    },
  );

  define(
    app,
    createRoute({
      method: 'post',
      path: '/v1/functions/{name}/rollback',
      operationId: 'rollBack',
      tags: ['Releases'],
      summary: 'Return an alias to an earlier state',
      description:
        'Goes one step back, or to a given version; two rollbacks go two steps back. The answer describes the change; with `dryRun`, nothing is changed.',
      security: SECURITY,
      request: { params: nameParam, body: jsonBody(RollbackRequestSchema) },
      responses: {
        200: json(RollbackSchema, 'The change'),
        ...problems('unknown-function', 'unknown-alias', 'invalid-alias', 'conflict', ...BODY_CODES),
      },
    }),
    async (c) => {
      const call = callOf(c, 'deploy');
      return jsonAnswer(
        c,
        await releases.rollback(
          call,
          c.req.valid('param').name,
          await readChecked(c.get('body'), RollbackRequestSchema),
        ),
      );
    },
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/functions/{name}/draining',
      operationId: 'listDraining',
      tags: ['Releases'],
      summary: 'List removed versions that still run',
      description: 'Removed versions whose invocations have not ended. Empty when all have ended.',
      security: SECURITY,
      request: { params: nameParam },
      responses: { 200: json(z.object({ draining: z.array(DrainingSchema) }), 'The versions'), ...problems() },
    }),
    async (c) => jsonAnswer(c, { draining: await releases.draining(callOf(c), c.req.valid('param').name) }),
  );

  define(
    app,
    createRoute({
      method: 'delete',
      path: '/v1/functions/{name}/versions/{version}',
      operationId: 'removeVersion',
      tags: ['Releases'],
      summary: 'Remove a version that no alias serves',
      description:
        'The version starts no new invocations, and is deleted when its invocations have ended. `now` cancels them.',
      security: SECURITY,
      request: { params: versionParam, query: removeQuery },
      responses: { ...REMOVED, ...problems('unknown-function', 'unknown-alias', 'invalid-alias', 'conflict') },
    }),
    async (c) => {
      const call = callOf(c, 'deploy');
      const { name, version } = c.req.valid('param');
      const draining = await releases.removeVersion(call, name, version, c.req.valid('query').now === 'true');
      return draining === null ? await throwMissing(control, call, name, version) : removalAnswer(c, draining);
    },
  );

  define(
    app,
    createRoute({
      method: 'delete',
      path: '/v1/functions/{name}/quarantine',
      operationId: 'liftQuarantine',
      tags: ['Releases'],
      summary: 'Lift the quarantine of a function',
      description:
        'Lifts it for all versions of the function and this tenant. A version is quarantined when its sandbox crashed or stopped answering twice within ten minutes while no other version computed in it.',
      security: SECURITY,
      request: { params: nameParam },
      responses: {
        200: json(z.object({ lifted: z.array(z.string()) }), 'The versions that left quarantine'),
        ...problems('unknown-function'),
      },
    }),
    async (c) => {
      const call = callOf(c, 'deploy');
      const { name } = c.req.valid('param');
      const lifted = await releases.liftQuarantine(call, name);
      if (lifted === null) throw unknownFunction(name);
      return c.json({ lifted });
    },
  );
}

function unknownAlias(name: string, alias: string): GatewayError {
  return new GatewayError('unknown-alias', `There is no alias "${alias}" of a function "${name}".`);
}
