// The room `sync`. How threads wait for each other: events, queues, workers, and the global lock of a language.
#pragma once

#include "sync/blocking.hpp"
#include "sync/event.hpp"
#include "sync/queue.hpp"
#include "sync/waiting.hpp"
#include "sync/worker.hpp"
#include "value/api.hpp"
