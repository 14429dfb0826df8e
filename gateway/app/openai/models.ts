import { createRoute, z } from '@hono/zod-openapi';
import { callOf } from '../context.ts';
import type { Call, ControlPlane, ModelInfo, ModelKind } from '../control.ts';
import { GatewayError } from '../errors/gateway-error.ts';
import { jsonAnswer } from '../http/answer.ts';
import { pause } from '../pause.ts';
import { type App, define, json, problems, SECURITY } from '../routes/define.ts';
import { ModelSchema } from '../schemas/platform.ts';

/** Longest wait for a runtime that reports models: a restart of the only runtime, with the supervisor's longest pause (5 s) before it, is shorter. */
const RUNTIME_GRACE_MS = 10_000;
const POLL_MS = 500;
/** Maximum characters of a model's name; an error message cuts a longer name to this length. */
const MAX_NAME = 128;

const NOUNS: Readonly<Record<ModelKind, string>> = {
  causal: 'a model that generates text',
  embedding: 'a model for embeddings',
  reranker: 'a reranker',
};

const idParam = z.object({
  id: z.string().min(1).max(MAX_NAME).openapi({ description: 'Name or alias of the model' }),
});

/** `/v1/models`, in the shape that OpenAI-style clients read, with Pie's own members added. */
export function modelRoutes(app: App, control: ControlPlane): void {
  const startedAtS = Math.floor(Date.now() / 1000);
  const toOpenAiModel = ({ name, ...model }: ModelInfo) => ({
    id: name,
    object: 'model' as const,
    created: startedAtS,
    owned_by: 'pie',
    ...model,
  });

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/models',
      operationId: 'listModels',
      tags: ['Models'],
      summary: 'List models',
      description: 'The models of the GPU hosts, aliases included, in the shape that OpenAI-style clients read.',
      security: SECURITY,
      responses: {
        200: json(z.object({ object: z.literal('list'), data: z.array(ModelSchema) }), 'The models'),
        ...problems(),
      },
    }),
    async (c) => jsonAnswer(c, { object: 'list', data: (await control.provenModels(callOf(c))).map(toOpenAiModel) }),
  );

  define(
    app,
    createRoute({
      method: 'get',
      path: '/v1/models/{id}',
      operationId: 'getModel',
      tags: ['Models'],
      summary: 'Inspect a model',
      security: SECURITY,
      request: { params: idParam },
      responses: { 200: json(ModelSchema, 'The model'), ...problems('unknown-model', 'runtime-unavailable') },
    }),
    async (c) => {
      const call = callOf(c);
      const found = await findModel(control, call, c.req.valid('param').id);
      const models = await control.provenModels(call);
      return c.json(toOpenAiModel(models.find(({ name }) => name === found.name) ?? found));
    },
  );
}

/** Finds a model, of `kind` if given, by name or alias. Throws `unknown-model`, or `runtime-unavailable` when no runtime reports models in time. */
export async function findModel(control: ControlPlane, call: Call, id: string, kind?: ModelKind): Promise<ModelInfo> {
  const until = performance.now() + RUNTIME_GRACE_MS;
  let models = await control.models(call);
  while (models.length === 0 && performance.now() < until && !call.signal.aborted) {
    await pause(POLL_MS, call.signal);
    models = await control.models(call);
  }
  const fitting = models.filter((model) => kind === undefined || model.kind === kind);
  const found = fitting.find(({ name }) => name === id);
  if (found !== undefined) return found;
  if (models.length === 0)
    throw new GatewayError('runtime-unavailable', 'No runtime reports its models at the moment.');
  const namesake = models.find(({ name }) => name === id);
  // The name may belong to a model of another kind.
  const what = namesake && kind ? `is ${NOUNS[namesake.kind]}; this route needs ${NOUNS[kind]}` : 'does not exist';
  const names = fitting.map(({ name }) => name).join(', ');
  const shortName = id.length > MAX_NAME ? `${id.slice(0, MAX_NAME)}…` : id;
  throw new GatewayError('unknown-model', `The model "${shortName}" ${what}.`, {
    field: 'model',
    hint: names === '' ? 'The platform has no such model: add one to pie.toml.' : `There are: ${names}.`,
  });
}
