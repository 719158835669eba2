
#define CHECK(call, name) do { \
    if (call) WARN("Call to " name " failed: %s", strerror(errno)); \
  } while (0)
#define WARN(...) ncclDebugLog(NCCL_LOG_WARN, NCCL_ALL, __FILE__, __LINE__, __VA_ARGS__)
// INFO(NCCL_INIT, "in a comment");
void one(int* x) {
  INFO(NCCL_INIT, "cudaDriverVersion %d", version);
  INFO(NCCL_NET, "The moon is made of %s, says \"%d\"", cheese, 3);
  INFO(NCCL_INIT|NCCL_NET, "NET/Socket: Using %d threads "
       "and %d sockets per " /* a comment, in between */ "thread", f(1, "a"), x[2]);
  INFO(NCCL_GRAPH, "%s", line);
  INFO(NCCL_INIT, found ? "Kettle %s is on" : "Kettle is off", name);
  WARN("Sugar 0x%" PRIx64 " was added", (uint64_t)sugar);
  TRACE(NCCL_NET, "Never asked for %d", 1);
}
