#include "steps.h"
#include <algorithm>
#include <string>
#include "../../device/capability.h"
#include "../errors.h"

namespace pie {

namespace {
size_t pickedBytes(const PlanContext& context) { return aligned(context.limits.paddedRows * sizeof(uint32_t)); }
size_t tableBytes(const PlanContext& context) { return aligned(context.limits.tableSlots * sizeof(int)); }
}  // namespace

template <typename T>
size_t Steps<T>::areaBytes(const PlanContext& context) {
  return tableBytes(context) + 2 * (aligned(mostUploadBytes(context)) + aligned(mostResultBytes(context)) + pickedBytes(context));
}

template <typename T>
Steps<T>::Steps(const DeviceModel<T>& model, uint8_t* areas, const EngineOptions& options)
    : model_(model), planner_(model.context), timing_(options.timing), tables_(reinterpret_cast<int*>(areas)),
      tickets_(options.timing, std::chrono::microseconds(options.spinUs)), graphs_(options.dependentLaunch && CHAINS_LAUNCHES) {
  if (areaBytes(model.context) / sizeof(int) > INT32_MAX) refuse("The engine's steps are too large for their integers.");
  areas += tableBytes(model.context);
  const size_t upload = mostUploadBytes(model.context), results = mostResultBytes(model.context);
  for (int i = 0; i < 2; i++) {
    areas_[i].upload = areas;
    areas_[i].uploadWord = static_cast<int>(reinterpret_cast<int*>(areas) - tables_);
    areas_[i].results = areas + aligned(upload);
    areas_[i].picked = reinterpret_cast<uint32_t*>(areas + aligned(upload) + aligned(results));
    areas += aligned(upload) + aligned(results) + pickedBytes(model.context);
    tickets_.at(i).upload = PinnedBlock(upload);
    tickets_.at(i).results = PinnedBlock(results);
  }
}

template <typename T>
Steps<T>::~Steps() {
  for (const Stream* stream : {&uploads_, &computing_, &downloads_}) (void)cudaStreamSynchronize(*stream);
}

template <typename T>
uint64_t Steps<T>::submit(const Batch& batch) {
  const std::vector<Part> parts = splitBatch(batch, model_.context.limits);
  checkPicked(batch, parts.size());
  picks_ = 0;
  Ticket& ticket = tickets_.begin();
  try {
    if (parts.size() == 1) submitWhole(ticket, batch, parts.front());
    else submitSplit(ticket, batch, parts);
  } catch (const CudaFailure&) {
    throw;  // The device is lost, so no kernel uses the ticket's memory.
  } catch (...) {
    // Queued work still uses the ticket's memory and the area, and no event marks its end, so wait for all streams.
    for (const Stream* stream : {&uploads_, &computing_, &downloads_}) stream->synchronize();
    throw;
  }
  if (parts.size() == 1) picks_ = parts.front().heads;
  return tickets_.commit(ticket);
}

template <typename T>
void Steps<T>::checkPicked(const Batch& batch, size_t parts) const {
  for (int i = 0; i < batch.count; i++) {
    const Sequence& s = batch.sequences[i];
    if (!s.picked) continue;
    if (parts > 1) refuse("Sequence " + std::to_string(i) + " takes picked tokens, and the batch does not fit one device step.");
    for (int row = 0; row < s.rows; row++)
      if (s.picked[row] >= static_cast<uint32_t>(picks_))
        refuse("Sequence " + std::to_string(i) + " takes picked token " + std::to_string(s.picked[row]) + " of " + std::to_string(picks_) +
               " of the batch before; a batch that did not fit one device step has none.");
  }
}

// Queues one upload and one download; the downloaded results keep the layout that they have on the device.
template <typename T>
void Steps<T>::submitWhole(Ticket& ticket, const Batch& batch, const Part& part) {
  const StepPlan plan = planner_.plan(batch, part, ticket.upload.get(), areaAhead(0).uploadWord);
  ticket.rows = plan.shape.padded ? plan.shape.rows : 0;
  enqueue(plan, ticket.upload.get(), timing_ ? &ticket.started : nullptr);
  const ResultLayout& at = plan.results;
  uint8_t* results = ticket.results.get();
  download(results, 0, at.bytes);
  areas_[area_].downloaded.record(downloads_);
  ticket.done.record(downloads_);
  ticket.found = {reinterpret_cast<const float*>(results + at.states), reinterpret_cast<const uint32_t*>(results + at.tokens),
                  reinterpret_cast<const float*>(results + at.logProbabilities), reinterpret_cast<const uint32_t*>(results + at.drawn),
                  reinterpret_cast<const float*>(results + at.attention), 0};
}

// Plans all parts, each in its own pinned memory, before it starts any. Then it queues them without waiting. Their results are stored contiguously.
template <typename T>
void Steps<T>::submitSplit(Ticket& ticket, const Batch& batch, const std::vector<Part>& parts) {
  const size_t hidden = model_.shape().hidden;
  Part all;
  size_t blocks = 0;
  for (const Part& part : parts) {
    blocks += aligned(uploadBound(part, model_.context));
    all.results += part.results;
    all.draws += part.draws;
    all.states += part.states;
    all.attention += part.attention;
  }
  const ResultLayout at = resultLayout({0, 0, all.states, 0, 0, false, false, 0}, all, model_.shape().hidden);
  if (ticket.split.bytes() < blocks + at.bytes) {
    ticket.split = PinnedBlock();
    ticket.split = PinnedBlock(blocks + at.bytes);
  }
  uint8_t* const results = ticket.split.get() + blocks;

  std::vector<StepPlan> plans;
  std::vector<const uint8_t*> planned;
  uint8_t* block = ticket.split.get();
  for (const Part& part : parts) {
    planned.push_back(block);
    plans.push_back(planner_.plan(batch, part, block, areaAhead(plans.size()).uploadWord));
    block += aligned(uploadBound(part, model_.context));
  }

  // attentionOf[i]: offset of sequence i's received attention among that of the batch.
  std::vector<size_t> attentionOf(batch.count + 1, 0);
  for (int i = 0; i < batch.count; i++)
    attentionOf[i + 1] = attentionOf[i] + (batch.sequences[i].attention ? batch.sequences[i].contextCount + batch.sequences[i].rows : 0);
  ticket.attention.assign(attentionOf.back(), 0.0f);

  size_t tokens = 0, draws = 0, states = 0, attention = 0;
  for (size_t i = 0; i < parts.size(); i++) {
    const Part& part = parts[i];
    const ResultLayout& from = plans[i].results;
    enqueue(plans[i], planned[i], timing_ && i == 0 ? &ticket.started : nullptr);
    download(results + at.tokens + tokens * sizeof(uint32_t), from.tokens, part.results * sizeof(uint32_t));
    download(results + at.logProbabilities + tokens * sizeof(float), from.logProbabilities, part.results * sizeof(float));
    download(results + at.drawn + draws * sizeof(uint32_t), from.drawn, part.draws * sizeof(uint32_t));
    download(results + at.states + states * hidden * sizeof(float), from.states, part.states * hidden * sizeof(float));
    download(results + at.attention + attention * sizeof(float), from.attention, part.attention * sizeof(float));
    areas_[area_].downloaded.record(downloads_);
    const float* received = reinterpret_cast<const float*>(results + at.attention) + attention;
    for (const Piece& piece : part.pieces) {
      const Sequence& sequence = batch.sequences[piece.sequence];
      if (!sequence.attention) continue;
      const size_t keys = piece.keys(sequence);
      ticket.sums.push_back({received, attentionOf[piece.sequence], keys});
      received += keys;
    }
    tokens += part.results;
    draws += part.draws;
    states += part.states;
    attention += part.attention;
  }
  ticket.done.record(downloads_);
  ticket.found = {reinterpret_cast<const float*>(results + at.states), reinterpret_cast<const uint32_t*>(results + at.tokens),
                  reinterpret_cast<const float*>(results + at.logProbabilities), reinterpret_cast<const uint32_t*>(results + at.drawn),
                  ticket.attention.data(), 0};
}

template <typename T>
void Steps<T>::enqueue(const StepPlan& plan, const uint8_t* block, const Event* started) {
  area_ = 1 - area_;
  const Area& area = areas_[area_];
  uploads_.wait(area.computed);
  CUDA_CALL(cudaMemcpyAsync(area.upload, block, plan.upload.bytes, cudaMemcpyHostToDevice, uploads_));
  area.uploaded.record(uploads_);
  computing_.wait(area.uploaded);
  computing_.wait(area.downloaded);
  if (started) started->record(computing_);
  const StepMemory memory{area.upload, tables_, area.results, area.picked, areas_[1 - area_].picked};
  const auto launch = [&](bool chained) { launchStep<T>(model_, plan, memory, chained, computing_); };
  if (plan.shape.padded) graphs_.run({plan.shape, area_}, computing_, launch);
  else launch(graphs_.chained());
  area.computed.record(computing_);
  downloads_.wait(area.computed);
}

template <typename T>
void Steps<T>::download(void* to, size_t from, size_t bytes) {
  if (bytes > 0) CUDA_CALL(cudaMemcpyAsync(to, areas_[area_].results + from, bytes, cudaMemcpyDeviceToHost, downloads_));
}

template class Steps<bf16>;
template class Steps<float>;

}  // namespace pie
