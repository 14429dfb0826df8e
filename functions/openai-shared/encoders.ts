import { type EncoderModel, encoders } from '@pie/inferlet';
import { RequestError } from './request.ts';

/** The encoder of that name and kind. @throws RequestError */
export function encoderNamed(name: string, kind: EncoderModel['kind']): EncoderModel {
  const all = encoders();
  const found = all.find((encoder) => encoder.name === name);
  if (found?.kind === kind) return found;
  const names = all.filter((encoder) => encoder.kind === kind).map((encoder) => encoder.name);
  const [article, noun] = kind === 'embedding' ? ['an', 'embedding model'] : ['a', 'reranker'];
  const hint = names.length === 0 ? `The platform has no ${noun}.` : `There are: ${names.join(', ')}.`;
  const text = found ? `The model "${name}" is not ${article} ${noun}.` : `The model "${name}" does not exist.`;
  throw new RequestError(`${text} ${hint}`, 'model', 'model_not_found');
}
