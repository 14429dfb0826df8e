import { embed } from '@pie/inferlet';
import { encoderNamed, RequestError, serve } from '../openai-shared/request.ts';
import { inNineDigits, mostVectors } from './answer-size.ts';
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
  const texts = typeof input === 'string' ? [input] : input;
  const most = mostVectors(size, encoding_format);
  if (texts.length > most) {
    const text = `An answer holds ${most} vectors of ${size} dimensions in the encoding_format "${encoding_format}"`;
    throw new RequestError(`${text}: send fewer texts at once.`, 'input');
  }
  const { vectors, tokens } = await embed(texts, { model });
  const data = vectors.map((vector, index) => ({
    object: 'embedding',
    index,
    embedding: encoding_format === 'base64' ? base64(new Uint8Array(vector.buffer)) : Array.from(vector, inNineDigits),
  }));
  return { object: 'list', data, model, usage: { prompt_tokens: tokens, total_tokens: tokens } };
});
