import { embed } from '@pie/inferlet';
import { encoderNamed } from '../openai-shared/encoders.ts';
import { RequestError, serve } from '../openai-shared/request.ts';
import { base64 } from './base64.ts';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly model: string;
  readonly input: string | readonly string[];
  readonly encoding_format?: 'float' | 'base64';
  readonly dimensions?: number;
}

/** `POST /v1/embeddings`. */
export const run = serve(async ({ model, input, encoding_format = 'float', dimensions }: Input) => {
  const { size } = encoderNamed(model, 'embedding');
  if (dimensions !== undefined && dimensions !== size) {
    throw new RequestError(
      `The vectors of "${model}" have ${size} dimensions: leave \`dimensions\` out.`,
      'dimensions',
    );
  }
  const { vectors, tokens } = await embed(typeof input === 'string' ? [input] : input, { model });
  const data = vectors.map((vector, index) => ({
    object: 'embedding',
    index,
    embedding: encoding_format === 'base64' ? base64(new Uint8Array(vector.buffer)) : [...vector],
  }));
  return { object: 'list', data, model, usage: { prompt_tokens: tokens, total_tokens: tokens } };
});
