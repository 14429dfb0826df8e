import { createRoute, z } from '@hono/zod-openapi';
import { FILE_NAME, MEDIA_TYPE } from '#scheduler/invocations/types.ts';
import { type AppSettings, callOf } from '../context.ts';
import { type ControlPlane, DEFAULT_MEDIA_TYPE } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { jsonAnswer } from '../http/answer.ts';
import { download } from '../http/download.ts';
import { FileSchema } from '../schemas/invocations.ts';
import { type App, define, json, problems, SECURITY } from './define.ts';
import { idParam, unknownInvocation } from './invocations.ts';

const nameParam = idParam.extend({
  name: z
    .string()
    .regex(FILE_NAME, 'must have 1 to 128 letters, digits, ".", "_" and "-"')
    .openapi({ description: 'Name of the file' }),
});

const anyContent = {
  'application/octet-stream': { schema: { type: 'string' as const, format: 'binary', description: 'The bytes' } },
};

function headersOf(name: string, mediaType: string, bytes: number): Record<string, string> {
  return {
    'content-type': mediaType,
    'content-length': String(bytes),
    // A browser must not run a tenant's page with the gateway's origin.
    'content-disposition': `attachment; filename="${name}"`,
    'content-security-policy': 'sandbox',
  };
}

/** Files between a client and its invocation, for data too large for a message. */
export function fileRoutes(app: App, control: ControlPlane, settings: AppSettings): void {
  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/invocations/{id}/files',
      operationId: 'listFiles',
      tags: ['Invocations'],
      summary: 'List the files of an invocation',
      description:
        "Files of the client and of the inferlet. The platform keeps them as long as the invocation's events.",
      security: SECURITY,
      request: { params: idParam },
      responses: {
        200: json(z.object({ files: z.array(FileSchema) }), 'The files, by name'),
        ...problems('unknown-invocation'),
      },
    }),
    async (c) => {
      const { id } = c.req.valid('param');
      const files = await control.files(callOf(c), id);
      if (files === null) throw unknownInvocation(id);
      return jsonAnswer(c, { files });
    },
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/invocations/{id}/files/{name}',
      operationId: 'getFile',
      tags: ['Invocations'],
      summary: 'Download a file of an invocation',
      security: SECURITY,
      request: { params: nameParam },
      responses: {
        200: { description: 'The file, with the content type of its upload', content: anyContent },
        ...problems('unknown-invocation', 'unknown-file', 'invalid-input', 'too-many-requests'),
      },
    }),
    async (c) => {
      const { id, name } = c.req.valid('param');
      const call = callOf(c);
      const unknownFile = () => new GatewayError('unknown-file', `The invocation ${id} has no file "${name}".`);
      const info = await control.fileInfo(call, id, name);
      if (info === null) throw unknownFile();
      const { bytes, mediaType } = info;
      if (c.req.method === 'HEAD') return new Response(null, { headers: headersOf(name, mediaType, bytes) });
      // The whole file is in memory until the client has taken it.
      const { tenant } = call.principal;
      settings.bodies.take(tenant, bytes);
      const free = () => settings.bodies.give(tenant, bytes);
      const file = await control.file(call, id, name).catch((error: unknown) => {
        free();
        throw error;
      });
      if (file === null) {
        free();
        throw unknownFile();
      }
      return new Response(download(file.content, free), {
        headers: headersOf(name, file.mediaType, file.content.length),
      });
    },
  );

  define(
    app,
    createRoute({
      method: 'put',
      path: '/v1/invocations/{id}/files/{name}',
      operationId: 'putFile',
      tags: ['Invocations'],
      summary: 'Upload a file for the inferlet',
      description:
        'The body is the content, `Content-Type` is kept. At most 16 MiB each, 64 MiB and 256 files an invocation. An existing name gets the new content.',
      security: SECURITY,
      request: { params: nameParam, body: { content: anyContent } },
      responses: {
        200: json(FileSchema, 'The stored file'),
        ...problems(
          'unknown-invocation',
          'conflict',
          'invalid-input',
          'unsupported-media-type',
          'body-too-large',
          'too-many-requests',
          'quota-storage',
        ),
      },
    }),
    async (c) => {
      const call = callOf(c, 'invoke');
      const { id, name } = c.req.valid('param');
      const mediaType = c.req.header('content-type') ?? DEFAULT_MEDIA_TYPE;
      if (!MEDIA_TYPE.test(mediaType)) {
        throw new GatewayError('unsupported-media-type', 'The Content-Type cannot be kept.', {
          hint: 'Send one such as `text/plain; charset=utf-8`, or none.',
        });
      }
      const content = await c.get('body').read(settings.limits.fileBytes);
      const file = await control.putFile(call, id, { name, mediaType, content });
      if (file === null) throw unknownInvocation(id);
      return c.json(file);
    },
  );
}
