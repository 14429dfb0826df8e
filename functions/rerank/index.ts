import { rerank } from '@pie/inferlet';
import { encoderNamed, serve } from '../openai-shared/request.ts';

/** The input that the schema in pie.json accepts. */
interface Input {
  readonly model: string;
  readonly query: string;
  readonly documents: readonly (string | { readonly text: string })[];
  readonly top_n?: number;
  readonly return_documents?: boolean;
}

/** `POST /v1/rerank`, in the form that Cohere and Jina made common. */
export const run = serve(async ({ model, query, documents, top_n, return_documents = false }: Input) => {
  // Throws for a model that is no reranker.
  encoderNamed(model, 'reranker');
  const texts = documents.map((document) => (typeof document === 'string' ? document : document.text));
  const { scores, ranking, tokens } = await rerank(query, texts, { model });
  const results = ranking.slice(0, top_n).map((index) => ({
    index,
    relevance_score: logistic(scores[index] ?? 0),
    ...(return_documents && { document: { text: texts[index] } }),
  }));
  return { object: 'list', model, results, usage: { prompt_tokens: tokens, total_tokens: tokens } };
});

/** The logistic function. Rerankers are trained so that it turns a score into the probability that the document answers the query. */
const logistic = (score: number): number => 1 / (1 + Math.exp(-score));
