import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints what the jars on the class path know about settings, one line each, tab-separated. */
public class KafkaSettings {
    public static void main(String[] arguments) {
        LogConfig.configKeys().values().forEach(key -> print("topic", key));
        AbstractKafkaConfig.CONFIG_DEF.configKeys().values().forEach(key -> print("broker", key));
        LogConfig.SERVER_CONFIG_DEF.names().forEach(name -> System.out.println("log\t" + name));
        CleanerConfig.CONFIG_DEF.names().forEach(name -> System.out.println("log\t" + name));
        DynamicBrokerConfig.ALL_DYNAMIC_CONFIGS.forEach(name -> System.out.println("live\t" + name));
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((topic, synonyms) -> synonyms.forEach(
            synonym -> System.out.println("synonym\t" + topic + "\t" + synonym.name() + "\t" + synonym.converter().apply("1"))));
    }

    private static void print(String scope, ConfigDef.ConfigKey key) {
        String value = key.defaultValue == null || key.defaultValue == ConfigDef.NO_DEFAULT_VALUE
            ? "(none)" : ConfigDef.convertToString(key.defaultValue, key.type);
        System.out.println(String.join("\t", scope, key.name, key.type.toString(), value, String.valueOf(key.validator)));
    }
}
